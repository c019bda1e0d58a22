// One row of bench/scale.py: what a number of processes takes for something, as a line of JSON.
//
//   mpirun -n 16 scale costs   THREADS
//   mpirun -n 16 scale train   THREADS BATCH SHARDS STEPS
//   mpirun -n 16 scale attend  THREADS HEADS TOKENS ROUNDS [backward | heads]
//   mpirun -n 16 scale account THREADS HEADS TOKENS ROUNDS [alone | backward | pieces]
//   mpirun -n 16 scale step    THREADS TOKENS
//
// Without mpirun it is one process. `attend` is attend_ring in several, attend in one; `step` is a
// step of training of two layers, tokens spread over processes, under window(4095, 0). Times are of
// the slowest process, memory of the one that has most. `account` says what the pass of
// every process of a ring went into; alone: without the help of others; backward: and that pass;
// pieces: and what its pieces take by themselves.
#include "bench/scale.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "cephalo/attention/ring/attend_ring.h"
#include "cephalo/attention/ring/spread_plan.h"
#include "cephalo/core/format.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"
#include "cephalo/model/gpt.h"
#include "cephalo/train/adamw.h"
#include "cephalo/train/loss.h"
#include "cephalo/train/trainer.h"
#include "cephalo/world/world.h"

namespace cephalo::scale {

double peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

std::vector<double> everyone(World& world, double mine) {
  std::vector<double> all;
  for (const std::string& text : world.gather(format_text("{}", mine))) {
    all.push_back(std::strtod(text.c_str(), nullptr));
  }
  return all;
}

double largest(World& world, double mine) {
  const std::vector<double> all = everyone(world, mine);
  return *std::max_element(all.begin(), all.end());
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double seconds_of(World& world, const std::function<void()>& work) {
  world.any(false);
  const auto begin = Clock::now();
  work();
  return largest(world, seconds_since(begin));
}

std::string list_of(const std::vector<double>& numbers) {
  std::string text;
  for (const double each : numbers) {
    append_text(text, "{}{:.6g}", text.empty() ? "" : ", ", each);
  }
  return "[" + text + "]";
}

void print_row(World& world, const Words& words, const std::string& rows) {
  if (world.rank() != 0) return;
  std::printf("{\"row\": \"%s\", \"processes\": %d, \"threads\": %d, %s}\n", words.argv[1],
              world.size(), threads(), rows.c_str());
  static_cast<void>(std::fflush(stdout));
}

std::vector<double> speeds(World& world) {
  const Tensor x = TorchGenerator(1).randn({8, 1024, 64});
  world.any(false);
  const auto begin = Clock::now();
  double calls = 0.0;
  double seconds = 0.0;
  for (; seconds < 0.5; calls += 1.0) {
    attend(x, x, x);
    seconds = seconds_since(begin);
  }
  constexpr double kFlops = 4.0 * 8 * 1024 * 1024 * 64;
  return everyone(world, calls * kFlops / seconds);
}

namespace {

void run_costs(World& world, const Words& words) {
  const SpreadCosts costs = measure_costs(world, threads());
  print_row(world, words,
            format_text("\"flops\": {:.4g}, \"mean_flops\": {:.4g}, \"bandwidth\": {:.4g}, "
                        "\"latency\": {:.4g}, \"speeds\": {}",
                        costs.flops, costs.mean_flops, costs.bandwidth, costs.latency,
                        list_of(speeds(world))));
}

// The recipe of the built-in model, on random tokens.
void run_train(World& world, const Words& words) {
  Gpt model({.vocab_size = 4096,
             .context_length = 256,
             .d_model = 256,
             .num_heads = 8,
             .num_layers = 4,
             .positions = PositionKind::rotary,
             .seed = 1});
  TrainerOptions options;
  options.batch = words.number(3, 64);
  options.shards = words.number(4, 16);
  const auto rows = [](std::int64_t number, std::span<std::int64_t> ids) {
    TorchGenerator generator(static_cast<std::uint64_t>(number));
    for (std::int64_t& id : ids) id = generator.randint(0, 4096);
  };
  Trainer trainer(model, rows, options, &world);
  double loss = trainer.step().loss;  // memory is there afterwards
  const std::vector<double> flops = speeds(world);
  std::vector<double> seconds;
  for (std::int64_t step = 0; step < words.number(5, 5); ++step) {
    seconds.push_back(seconds_of(world, [&] { loss = trainer.step().loss; }));
  }
  print_row(world, words,
            format_text("\"batch\": {}, \"shards\": {}, \"parameters\": {}, \"speeds\": {}, "
                        "\"seconds\": {}, \"tokens_per_second\": {:.0f}, \"loss\": {:.9g}, "
                        "\"peak\": {:.4g}",
                        options.batch, options.shards, model.parameter_count(), list_of(flops),
                        list_of(seconds),
                        static_cast<double>(256 * options.batch) /
                            *std::min_element(seconds.begin(), seconds.end()),
                        loss, largest(world, peak_bytes())));
}

void run_step(World& world, const Words& words) {
  const dim_t tokens = words.number(3, 1 << 20);
  const double before = largest(world, peak_bytes());
  Gpt model({.vocab_size = 256,
             .context_length = tokens,
             .d_model = 64,
             .num_heads = 1,
             .num_layers = 2,
             .positions = PositionKind::rotary,
             .seed = 1});
  const dim_t mine = ring_share(tokens, world.rank(), world.size()).tokens();
  TorchGenerator generator(static_cast<std::uint64_t>(world.rank() + 1));
  Tensor ids = Tensor::empty({1, mine}, DType::i64);
  Tensor targets = Tensor::empty({mine}, DType::i64);
  for (dim_t t = 0; t < mine; ++t) {
    ids.mutable_data_as<std::int64_t>()[t] = generator.randint(0, 256);
    targets.mutable_data_as<std::int64_t>()[t] = generator.randint(0, 256);
  }
  GptGradients gradients(model);
  std::vector<AdamWState> states(model.parameters().size());
  double loss = 0.0;
  const double seconds = seconds_of(world, [&] {
    PassOptions options;
    options.mask = window(4095, 0);
    if (world.size() > 1) options.spread = {&world, tokens};
    loss = model.train_pass(
        ids,
        [&](dim_t first, const MutableTensorView& logits) {
          return cross_entropy_share(logits, targets.slice(0, first, first + logits.dim(0)), tokens,
                                     logits);
        },
        gradients, options);
    model.update_all([&](std::size_t n, const std::string&, const MutableTensorView& p) {
      adamw_step(p, gradients.tensors()[n], states[n], {.learning_rate = 3e-4});
    });
  });
  const double after = largest(world, peak_bytes());
  print_row(world, words,
            format_text("\"tokens\": {}, \"seconds\": [{:.6g}], \"loss\": {:.9g}, \"before\": "
                        "{:.4g}, \"peak\": {:.4g}, \"predicted\": {:.4g}",
                        tokens, seconds, loss, before, after,
                        before + 16.0 * static_cast<double>(mine) +
                            static_cast<double>(
                                memory_bytes(model.options(), 1, tokens, world.size()).total())));
}

int run(int argc, char** argv) {
  const Words words{argc, argv};
  const std::string row = words.word(1);
  const auto world = open_world();
  set_threads(static_cast<int>(words.number(2, 1)));
  if (row == "costs") {
    run_costs(*world, words);
  } else if (row == "train") {
    run_train(*world, words);
  } else if (row == "attend") {
    run_attend(*world, words);
  } else if (row == "account") {
    run_account(*world, words);
  } else if (row == "step") {
    run_step(*world, words);
  } else {
    std::fputs("usage: scale costs | train | attend | account | step, THREADS and sizes\n", stderr);
    return 2;
  }
  world->end();
  return 0;
}

}  // namespace
}  // namespace cephalo::scale

int main(int argc, char** argv) {
  return cephalo::scale::run(argc, argv);
}
