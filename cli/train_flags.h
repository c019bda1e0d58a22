#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/command.h"

namespace cephalo::cli {

// The flag that sets an option of the model: "--d-model" for d_model.
std::string flag_of(const char* option);

// The flags of train as they were typed; empty: not typed.
struct TrainFlags {
  std::vector<std::string> files;
  std::string out, steps, batch, accumulate, shards;
  std::map<std::string, std::string> model;  // by the option that they set
  std::string vocab, vocab_size;
  std::string learning_rate, warmup, min_lr_share, weight_decay, beta2, clip;
  std::string repeat_share, validation_share;
  std::string save_every, sample_every, report_every, prompt, threads, timeout, which_export;
  bool resume = false, previous = false, bf16_export = false;

  const std::string& typed(const std::string& option) const;
  void add_to(Command verb);
};

}  // namespace cephalo::cli
