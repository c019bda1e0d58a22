// One row of bench/scale.py: what a number of processes takes for something, as a line of JSON.
//
//   mpirun -n 16 scale costs   THREADS
//   mpirun -n 16 scale train   THREADS BATCH SHARDS STEPS
//   mpirun -n 16 scale attend  THREADS HEADS TOKENS ROUNDS [backward | heads]
//   mpirun -n 16 scale step    THREADS TOKENS
//
// Without mpirun it is one process. `attend` is attend_ring in several, attend in one; `step` is a
// step of training of two layers, tokens spread over processes, under window(4095, 0). Times are of
// the slowest process, memory of the one that has most.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/ring/attend_heads.h"
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

namespace cephalo {
namespace {

using Clock = std::chrono::steady_clock;

double peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

double largest(World& world, double mine) {
  double most = mine;
  for (const std::string& text : world.gather(format_text("{}", mine))) {
    most = std::max(most, std::strtod(text.c_str(), nullptr));
  }
  return most;
}

// Seconds of the slowest process, from a moment at which all are there.
double seconds_of(World& world, const std::function<void()>& work) {
  world.any(false);
  const auto begin = Clock::now();
  work();
  return largest(world, std::chrono::duration<double>(Clock::now() - begin).count());
}

std::string list_of(const std::vector<double>& numbers) {
  std::string text;
  for (const double each : numbers) {
    append_text(text, "{}{:.6g}", text.empty() ? "" : ", ", each);
  }
  return "[" + text + "]";
}

struct Words {
  int argc;
  char** argv;
  std::int64_t number(int n, std::int64_t otherwise) const {
    return n < argc ? std::strtoll(argv[n], nullptr, 10) : otherwise;
  }
  std::string word(int n) const { return n < argc ? argv[n] : ""; }
};

// Knows how long a process was busy with messages: waiting for them, and moving them on.
class TimedWorld : public World {
 public:
  explicit TimedWorld(World& world) : World(world.rank(), world.size()), world_(world) {}
  int processes_here() const override { return world_.processes_here(); }
  std::unique_ptr<Transfers> transfers() override {
    return std::make_unique<Timed>(*this, world_.transfers());
  }
  void end() override { world_.end(); }
  void abort(int status) override { world_.abort(status); }

  double seconds = 0.0;

 private:
  class Timed : public Transfers {
   public:
    Timed(TimedWorld& world, std::unique_ptr<Transfers> inner)
        : Transfers(0.0), world_(world), inner_(std::move(inner)) {}
    void send(int to, int tag, std::span<const std::byte> bytes) override {
      timed([&] { inner_->send(to, tag, bytes); });
    }
    void receive(int from, int tag, std::span<std::byte> bytes) override {
      timed([&] { inner_->receive(from, tag, bytes); });
    }
    bool progress() override {
      bool all = false;
      timed([&] { all = inner_->progress(); });
      return all;
    }
    void wait() override {
      timed([&] { inner_->wait(); });
    }

   private:
    template <typename Work>
    void timed(const Work& work) {
      const auto begin = Clock::now();
      work();
      world_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    }
    int awaited() override { return 0; }
    TimedWorld& world_;
    std::unique_ptr<Transfers> inner_;
  };

  World& world_;
};

// rows: what follows the common beginning of the line
void print_row(World& world, const Words& words, const std::string& rows) {
  if (world.rank() != 0) return;
  std::printf("{\"row\": \"%s\", \"processes\": %d, \"threads\": %d, %s}\n", words.argv[1],
              world.size(), threads(), rows.c_str());
  static_cast<void>(std::fflush(stdout));
}

// Flops a second of every process while all compute, for a second.
std::vector<double> speeds(World& world) {
  const Tensor x = TorchGenerator(1).randn({8, 1024, 64});
  world.any(false);
  const auto begin = Clock::now();
  double calls = 0.0;
  double seconds = 0.0;
  for (; seconds < 1.0; calls += 1.0) {
    attend(x, x, x);
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  constexpr double kFlops = 4.0 * 8 * 1024 * 1024 * 64;
  std::vector<double> all;
  for (const std::string& text : world.gather(format_text("{}", calls * kFlops / seconds))) {
    all.push_back(std::strtod(text.c_str(), nullptr));
  }
  return all;
}

void run_costs(World& world, const Words& words) {
  const SpreadCosts costs = measure_costs(world, threads());
  print_row(world, words,
            format_text("\"flops\": {:.4g}, \"bandwidth\": {:.4g}, \"latency\": {:.4g}, "
                        "\"speeds\": {}",
                        costs.flops, costs.bandwidth, costs.latency, list_of(speeds(world))));
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
  std::vector<double> seconds;
  for (std::int64_t step = 0; step < words.number(5, 5); ++step) {
    seconds.push_back(seconds_of(world, [&] { loss = trainer.step().loss; }));
  }
  print_row(world, words,
            format_text("\"batch\": {}, \"shards\": {}, \"parameters\": {}, \"seconds\": {}, "
                        "\"tokens_per_second\": {:.0f}, \"loss\": {:.9g}, \"peak\": {:.4g}",
                        options.batch, options.shards, model.parameter_count(), list_of(seconds),
                        static_cast<double>(256 * options.batch) /
                            *std::min_element(seconds.begin(), seconds.end()),
                        loss, largest(world, peak_bytes())));
}

class Attending {
 public:
  Attending(World& world, dim_t heads, dim_t tokens, const std::string& way)
      : world_(world), tokens_(tokens), heads_way_(way == "heads") {
    const dim_t mine = ring_share(tokens, world.rank(), world.size()).tokens();
    TorchGenerator generator(static_cast<std::uint64_t>(world.rank() + 1));
    q_ = generator.randn({1, heads, mine, 64});
    k_ = generator.randn({1, heads, mine, 64});
    v_ = generator.randn({1, heads, mine, 64});
  }

  void forward() {
    if (world_.size() == 1) {
      found_ = attend(q_, k_, v_, causal(), {.return_lse = true});
    } else {
      found_ = (heads_way_ ? attend_heads : attend_ring)(world_, tokens_, q_, k_, v_, causal(), {});
    }
  }

  void backward() {
    const AttendPass pass{found_.context, found_.lse, found_.context};
    if (world_.size() == 1) {
      attend_backward(pass, q_, k_, v_, causal());
    } else {
      attend_ring_backward(world_, tokens_, pass, q_, k_, v_, causal());
    }
  }

  double input_bytes() const { return 4.0 * static_cast<double>(4 * q_.numel()); }  // and context

 private:
  World& world_;
  dim_t tokens_;
  bool heads_way_;
  Tensor q_, k_, v_;
  AttendResult found_;
};

void run_attend(World& world, const Words& words) {
  const dim_t heads = words.number(3, 8);
  const dim_t tokens = words.number(4, 131072);
  const std::string way = words.word(6);
  const double before = largest(world, peak_bytes());
  TimedWorld timed(world);
  Attending attending(timed, heads, tokens, way);
  std::vector<double> forward;
  std::vector<double> messages;  // of the process that was least busy with them: the slowest
  std::vector<double> backward;
  for (std::int64_t round = 0; round < words.number(5, 1); ++round) {
    timed.seconds = 0.0;
    forward.push_back(seconds_of(world, [&] { attending.forward(); }));
    messages.push_back(-largest(world, -timed.seconds));
    if (way == "backward") {
      backward.push_back(seconds_of(world, [&] { attending.backward(); }));
    }
  }
  const double after = largest(world, peak_bytes());
  const SpreadShape shape{.processes = world.size(),
                          .num_heads = heads,
                          .tokens = tokens,
                          .head_dim = 64,
                          .backward = way == "backward"};
  const SpreadPlan told = plan(shape, causal(), {1.0, 1.0, 0.0});
  print_row(
      world, words,
      format_text(
          "\"heads\": {}, \"tokens\": {}, \"way\": \"{}\", \"seconds\": {}, "
          "\"messages\": {}, \"backward_seconds\": {}, \"flops\": {:.6g}, \"before\": {:.4g}, "
          "\"peak\": {:.4g}, \"predicted\": {:.4g}",
          heads, tokens, way, list_of(forward), list_of(messages), list_of(backward),
          told.ring.flops, before, after,
          before + attending.input_bytes() + (world.size() > 1 ? told.ring.memory : 0.0)));
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
  } else if (row == "step") {
    run_step(*world, words);
  } else {
    std::fputs("usage: scale costs | train | attend | step, THREADS and sizes\n", stderr);
    return 2;
  }
  world->end();
  return 0;
}

}  // namespace
}  // namespace cephalo

int main(int argc, char** argv) {
  return cephalo::run(argc, argv);
}
