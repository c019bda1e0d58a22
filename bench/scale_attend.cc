#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/scale.h"
#include "cephalo/attention/attend_backward.h"
#include "cephalo/attention/ring/attend_heads.h"
#include "cephalo/attention/ring/attend_ring.h"
#include "cephalo/attention/ring/ring_help.h"
#include "cephalo/attention/ring/ring_rows.h"
#include "cephalo/attention/ring/spread_plan.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"

namespace cephalo::scale {
namespace {

// Knows how long a process was busy with messages.
class TimedWorld : public World {
 public:
  explicit TimedWorld(World& world) : World(world.rank(), world.size()), world_(world) {}
  int processes_here() const override { return world_.processes_here(); }
  std::unique_ptr<Transfers> transfers() override {
    return std::make_unique<Timed>(*this, world_.transfers());
  }
  void end() override { world_.end(); }
  void abort(int status) override { world_.abort(status); }

  double moving = 0.0;   // seconds of beginning them and of moving them on
  double waiting = 0.0;  // of waiting for them

 private:
  class Timed : public Transfers {
   public:
    Timed(TimedWorld& world, std::unique_ptr<Transfers> inner)
        : Transfers(0.0), world_(world), inner_(std::move(inner)) {}
    void send(int to, int tag, std::span<const std::byte> bytes) override {
      timed(world_.moving, [&] { inner_->send(to, tag, bytes); });
    }
    void receive(int from, int tag, std::span<std::byte> bytes) override {
      timed(world_.moving, [&] { inner_->receive(from, tag, bytes); });
    }
    bool progress() override {
      bool all = false;
      timed(world_.moving, [&] { all = inner_->progress(); });
      return all;
    }
    void wait() override {
      timed(world_.waiting, [&] { inner_->wait(); });
    }

   private:
    template <typename Work>
    static void timed(double& spent, const Work& work) {
      const auto begin = Clock::now();
      work();
      spent += seconds_since(begin);
    }
    int awaited() override { return 0; }
    TimedWorld& world_;
    std::unique_ptr<Transfers> inner_;
  };

  World& world_;
};

class Attending {
 public:
  Attending(World& world, dim_t heads, dim_t tokens, const std::string& way)
      : world_(world), tokens_(tokens), heads_way_(way == "heads") {
    const dim_t mine = ring_share(tokens, world.rank(), world.size()).tokens();
    TorchGenerator generator(static_cast<std::uint64_t>(world.rank() + 1));
    q_ = random_rows(generator, heads, mine);
    k_ = random_rows(generator, heads, mine);
    v_ = random_rows(generator, heads, mine);
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

  // forward() of several processes; units: RingHelp -> runs of units of others
  double forward_in_units(double unit_flops) {
    const Mask mask = causal();
    const RingCall call(world_, tokens_, q_, k_, v_, mask, {}, "scale");
    std::int64_t helped = 0;
    found_ = attend_ring_in_units(call, unit_flops, &helped);
    return static_cast<double>(helped);
  }

  // What forward() attends to, with the process's own keys in place of all others and nothing
  // joined.
  void pieces() {
    const Mask mask = causal();
    const RingCall call(world_, tokens_, q_, k_, v_, mask, {}, "scale");
    const int size = world_.size();
    KeptMemory<2> memory;
    for (int step = 0; step < size; ++step) {
      const int owner = ring_owner(world_.rank(), step, size);
      for (const RingPiece& q_piece : ring_pieces(tokens_, world_.rank(), size)) {
        for (const RingPiece& kv_piece : ring_pieces(tokens_, owner, size)) {
          if (call.meet(q_piece, kv_piece)) attend_piece(call, q_piece, kv_piece, memory);
        }
      }
    }
  }

  double input_bytes() const { return 4.0 * static_cast<double>(4 * q_.numel()); }  // and context

 private:
  // [1, heads, rows, 64]; some are drawn and repeated, which takes less time than all.
  static Tensor random_rows(TorchGenerator& generator, dim_t heads, dim_t rows) {
    const dim_t drawn = std::min<dim_t>(rows, 4096);
    const Tensor some = generator.randn({1, heads, drawn, 64});
    Tensor all = Tensor::empty({1, heads, rows, 64});
    for (dim_t begin = 0; begin < rows; begin += drawn) {
      const dim_t end = std::min(begin + drawn, rows);
      all.mutable_view().slice(2, begin, end).copy_from(some.slice(2, 0, end - begin));
    }
    return all;
  }

  static void attend_piece(const RingCall& call, const RingPiece& q_piece,
                           const RingPiece& kv_piece, KeptMemory<2>& memory) {
    const dim_t rows = q_piece.whole.count();
    const dim_t keys = kv_piece.whole.count();
    const TensorView q = call.q.slice(2, q_piece.begin, q_piece.begin + rows);
    attend_into({memory.view(0, q.shape(), DType::f32),
                 memory.view(1, {q.dim(0), q.dim(1), rows}, DType::f32)},
                q, call.k.slice(2, kv_piece.begin, kv_piece.begin + keys),
                call.v.slice(2, kv_piece.begin, kv_piece.begin + keys),
                call.mask_of(q_piece, kv_piece), call.options_of(q_piece, kv_piece));
  }

  World& world_;
  dim_t tokens_;
  bool heads_way_;
  Tensor q_, k_, v_;
  AttendResult found_;
};

// What a process has used so far.
struct Used {
  double user, system;      // seconds
  double faults, switches;  // new pages, cores taken away
};
Used used() {
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {seconds(usage.ru_utime), seconds(usage.ru_stime), static_cast<double>(usage.ru_minflt),
          static_cast<double>(usage.ru_nivcsw)};
}

// What every process spends on some work: an object of JSON.
std::string account_of(World& world, TimedWorld& timed, const std::function<void()>& work) {
  timed.moving = 0.0;
  timed.waiting = 0.0;
  world.any(false);
  const Used before = used();
  const auto begin = Clock::now();
  work();
  const double seconds = seconds_since(begin);
  const Used after = used();
  std::string text;
  const auto add = [&](const char* what, double mine) {
    append_text(text, "{}\"{}\": {}", text.empty() ? "" : ", ", what,
                list_of(everyone(world, mine)));
  };
  add("seconds", seconds);
  add("moving", timed.moving);
  add("waiting", timed.waiting);
  add("user", after.user - before.user);
  add("system", after.system - before.system);
  add("faults", after.faults - before.faults);
  add("switches", after.switches - before.switches);
  return "{" + text + "}";
}

// How fast processes were around passes: right before and after each. Cores of a virtual machine
// change within seconds.
class SpeedsAround {
 public:
  explicit SpeedsAround(World& world) : world_(world), last_(speeds(world)) {}

  // A pass of this kind has just ended.
  void end(std::size_t kind) {
    const std::vector<double> now = speeds(world_);
    sums_[kind].resize(now.size());
    for (std::size_t r = 0; r < now.size(); ++r) sums_[kind][r] += (last_[r] + now[r]) / 2.0;
    passes_[kind] += 1.0;
    last_ = now;
  }

  // Of every process, the mean around all passes of this kind.
  std::vector<double> speeds_of(std::size_t kind) const {
    std::vector<double> result = sums_[kind];
    for (double& each : result) each /= passes_[kind];
    return result;
  }

 private:
  World& world_;
  std::vector<double> last_;
  std::array<std::vector<double>, 2> sums_;
  std::array<double, 2> passes_{};
};

}  // namespace

void run_attend(World& world, const Words& words) {
  const dim_t heads = words.number(3, 8);
  const dim_t tokens = words.number(4, 131072);
  const std::string way = words.word(6);
  const double before = largest(world, peak_bytes());
  TimedWorld timed(world);
  Attending attending(timed, heads, tokens, way);
  SpeedsAround around(world);
  std::vector<double> forward;
  std::vector<double> messages;  // of the process that was least busy with them: the slowest
  std::vector<double> backward;
  for (std::int64_t round = 0; round < words.number(5, 1); ++round) {
    timed.moving = 0.0;
    timed.waiting = 0.0;
    forward.push_back(seconds_of(world, [&] { attending.forward(); }));
    messages.push_back(-largest(world, -timed.moving - timed.waiting));
    around.end(0);
    if (way == "backward") {
      backward.push_back(seconds_of(world, [&] { attending.backward(); }));
      around.end(1);
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
          "\"heads\": {}, \"tokens\": {}, \"way\": \"{}\", \"speeds\": {}, \"seconds\": {}, "
          "\"messages\": {}, \"backward_speeds\": {}, \"backward_seconds\": {}, "
          "\"flops\": {:.6g}, \"before\": {:.4g}, \"peak\": {:.4g}, \"predicted\": {:.4g}",
          heads, tokens, way, list_of(around.speeds_of(0)), list_of(forward), list_of(messages),
          list_of(around.speeds_of(1)), list_of(backward), told.ring.flops, before, after,
          before + attending.input_bytes() + (world.size() > 1 ? told.ring.memory : 0.0)));
}

void run_account(World& world, const Words& words) {
  const dim_t heads = words.number(3, 8);
  const dim_t tokens = words.number(4, 131072);
  const std::string way = words.word(6);
  const bool alone = way == "alone";
  const double unit_flops = alone ? std::numeric_limits<double>::infinity() : RingHelp::kUnitFlops;
  TimedWorld timed(world);
  Attending attending(timed, heads, tokens, "");
  for (std::int64_t round = 0; round < words.number(5, 1); ++round) {
    std::string text = format_text("\"heads\": {}, \"tokens\": {}, \"alone\": {}", heads, tokens,
                                   alone ? "true" : "false");
    append_text(text, ", \"speeds\": {}", list_of(speeds(world)));
    double helped = 0.0;
    const auto forward = [&] { helped = attending.forward_in_units(unit_flops); };
    append_text(text, ", \"forward\": {}", account_of(world, timed, forward));
    append_text(text, ", \"helped\": {}", list_of(everyone(world, helped)));
    if (way == "backward") {
      const auto backward = [&] { attending.backward(); };
      append_text(text, ", \"backward\": {}", account_of(world, timed, backward));
    }
    if (way == "pieces") {
      const auto pieces = [&] { attending.pieces(); };
      append_text(text, ", \"pieces\": {}", account_of(world, timed, pieces));
    }
    print_row(world, words, text);
  }
}

}  // namespace cephalo::scale
