#pragma once

#include "cephalo/model/gpt_options.h"

#pragma GCC visibility push(default)
namespace cephalo {

// How many bytes training takes, known before anything is allocated.
struct GptMemory {
  dim_t parameters = 0;
  dim_t gradients = 0;
  dim_t optimiser = 0;  // of AdamW: two numbers for each parameter
  dim_t pass = 0;       // of one train_pass: what is kept for the way back, and room to work in
  dim_t total() const { return parameters + gradients + optimiser + pass; }
};
// processes: over which the tokens of each sequence are spread; -> those of one of them
GptMemory memory_bytes(const GptOptions& options, dim_t batch, dim_t tokens, int processes = 1);

}  // namespace cephalo
#pragma GCC visibility pop
