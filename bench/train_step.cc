// Training steps on demand, for train_speed.py: forward, backward and AdamW of a small GPT.
//
//   train_step BATCH TOKENS THREADS [rotary]
//
// For every number N on its input it makes N steps and prints the seconds that each took, in one
// line; at the end of input the last loss and the most memory that it ever had, in MiB.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "cephalo/core/format.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"
#include "cephalo/model/gpt.h"
#include "cephalo/train/adamw.h"
#include "cephalo/train/loss.h"

namespace cephalo {
namespace {

Tensor random_ids(const Shape& shape, dim_t vocab_size, std::uint64_t seed) {
  TorchGenerator generator(seed);
  Tensor ids = Tensor::empty(shape, DType::i64);
  for (dim_t i = 0; i < ids.numel(); ++i) {
    ids.mutable_data_as<std::int64_t>()[i] = generator.randint(0, vocab_size);
  }
  return ids;
}

class Training {
 public:
  Training(const GptOptions& options, dim_t batch, dim_t tokens)
      : model_(options),
        gradients_(model_),
        states_(model_.parameters().size()),
        ids_(random_ids({batch, tokens}, options.vocab_size, 1)),
        targets_(random_ids({batch * tokens}, options.vocab_size, 2)) {}

  double step() {
    gradients_.zero();
    const double loss = model_.train_pass(
        ids_,
        [&](dim_t first, const MutableTensorView& logits) {
          return cross_entropy_share(logits, targets_.slice(0, first, first + logits.dim(0)),
                                     targets_.numel(), logits);
        },
        gradients_, {.workspace = &workspace_});
    model_.update_all([&](std::size_t index, const std::string&, const MutableTensorView& p) {
      adamw_step(p, gradients_.tensors()[index], states_[index], {.learning_rate = 3e-4});
    });
    return loss;
  }

 private:
  Gpt model_;
  GptGradients gradients_;
  std::vector<AdamWState> states_;
  GptWorkspace workspace_;
  Tensor ids_;
  Tensor targets_;
};

int run(int argc, char** argv) {
  if (argc < 4) {
    std::fputs("usage: train_step BATCH TOKENS THREADS [rotary]\n", stderr);
    return 2;
  }
  const dim_t batch = std::strtoll(argv[1], nullptr, 10);
  const dim_t tokens = std::strtoll(argv[2], nullptr, 10);
  set_threads(static_cast<int>(std::strtol(argv[3], nullptr, 10)));
  const bool rotary = argc > 4 && std::string(argv[4]) == "rotary";
  Training training({.vocab_size = 4096,
                     .context_length = tokens,
                     .d_model = 256,
                     .num_heads = 8,
                     .num_layers = 4,
                     .positions = rotary ? PositionKind::rotary : PositionKind::learned,
                     .seed = 1},
                    batch, tokens);
  using Clock = std::chrono::steady_clock;
  double loss = 0.0;
  for (int steps = 0; std::cin >> steps;) {
    for (int k = 0; k < steps; ++k) {
      const auto begin = Clock::now();
      loss = training.step();
      std::fputs(
          format_text("{} ", std::chrono::duration<double>(Clock::now() - begin).count()).c_str(),
          stdout);
    }
    std::fputs("\n", stdout);
    static_cast<void>(std::fflush(stdout));
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::fputs(format_text("{} {}\n", loss, static_cast<double>(usage.ru_maxrss) / 1024.0).c_str(),
             stdout);
  return 0;
}

}  // namespace
}  // namespace cephalo

int main(int argc, char** argv) {
  return cephalo::run(argc, argv);
}
