#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace cephalo::cli {

// The flags of train as they were typed; empty: not typed.
struct TrainFlags {
  std::vector<std::string> files;
  std::string out, steps, batch, accumulate, context_length;
  std::string d_model, num_layers, num_heads, positions, dropout;
  std::string vocab, vocab_size;
  std::string learning_rate, warmup, min_lr_share, weight_decay, beta2, clip;
  std::string repeat_share, validation_share, seed;
  std::string save_every, sample_every, report_every, prompt, threads, which_export;
  bool resume = false, previous = false, bf16_export = false;

  void add_to(CLI::App& verb);
};

}  // namespace cephalo::cli
