#include "cephalo/attention/ring/spread_plan.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "cephalo/attention/attend.h"
#include "cephalo/attention/ring/ring_help.h"
#include "cephalo/attention/ring/ring_rows.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/format.h"
#include "cephalo/mask/bound_mask.h"
#include "cephalo/world/world.h"

namespace cephalo {
namespace {

// Forward two products for each pair, backward five.
constexpr double kBackwardFlops = 2.5;

SpreadShape checked(SpreadShape shape) {
  if (shape.num_kv_heads == 0) shape.num_kv_heads = shape.num_heads;
  if (shape.v_dim == 0) shape.v_dim = shape.head_dim;
  require(shape.processes > 0 && shape.batch > 0 && shape.num_kv_heads > 0 && shape.tokens > 0 &&
              shape.head_dim > 0 && shape.num_heads % shape.num_kv_heads == 0,
          "plan: {} processes, batch {}, {} and {} heads of {} and {} tokens cannot be",
          shape.processes, shape.batch, shape.num_heads, shape.num_kv_heads, shape.head_dim,
          shape.tokens);
  return shape;
}

void check_costs(const SpreadCosts& costs) {
  require(costs.flops > 0.0 && costs.bandwidth > 0.0 && costs.latency >= 0.0,
          "plan: flops ({}) and bandwidth ({}) must be > 0, latency ({}) >= 0; measure_costs() "
          "finds them",
          costs.flops, costs.bandwidth, costs.latency);
}

// Pairs that positions allow between the pieces of a sequence, summed over sequences.
class Pairs {
 public:
  Pairs(const SpreadShape& s, const Mask& mask)
      : tokens_(s.tokens), pieces_(2 * s.processes), pairs_(checked_square(pieces_)) {
    Mask by_position = mask;
    by_position.tensors.clear();
    const BoundMask bound(by_position, {s.batch, s.num_heads, s.tokens, s.tokens}, "plan");
    for (dim_t b = 0; b < s.batch; ++b) {
      for (int piece = 0; piece < pieces_; ++piece) add_piece(bound, b, piece);
    }
  }

  // Between the queries that one process has and the keys that another has.
  double between(int q_rank, int kv_rank) const {
    const int late = pieces_ - 1;
    return at(q_rank, kv_rank) + at(q_rank, late - kv_rank) + at(late - q_rank, kv_rank) +
           at(late - q_rank, late - kv_rank);
  }
  double all() const {
    double sum = 0.0;
    for (const double each : pairs_) sum += each;
    return sum;
  }

 private:
  static std::size_t checked_square(int n) {
    return static_cast<std::size_t>(n) * static_cast<std::size_t>(n);
  }
  std::size_t index(int q_piece, int kv_piece) const {
    return static_cast<std::size_t>(q_piece) * static_cast<std::size_t>(pieces_) +
           static_cast<std::size_t>(kv_piece);
  }
  double at(int q_piece, int kv_piece) const { return pairs_[index(q_piece, kv_piece)]; }

  // Spans of neighbours differ by little: where a piece has many queries, some in even distances
  // stand for the others.
  void add_piece(const BoundMask& bound, dim_t b, int piece) {
    constexpr dim_t kMost = 64;
    const Share queries = share_of(tokens_, piece, pieces_);
    const dim_t looks = std::min(queries.count(), kMost);
    for (dim_t n = 0; n < looks; ++n) {
      const Share stands_for =
          share_of(queries.count(), static_cast<int>(n), static_cast<int>(looks));
      const dim_t i = queries.begin + (stands_for.begin + stands_for.end) / 2;
      add_span(bound.span(b, i), piece, static_cast<double>(stands_for.count()));
    }
  }

  void add_span(const BoundMask::KeyRange& span, int q_piece, double queries) {
    for (int piece = 0; piece < pieces_; ++piece) {
      const Share keys = share_of(tokens_, piece, pieces_);
      if (keys.begin >= span.end) break;
      const dim_t seen = std::min(keys.end, span.end) - std::max(keys.begin, span.begin);
      if (seen > 0) pairs_[index(q_piece, piece)] += queries * static_cast<double>(seen);
    }
  }

  dim_t tokens_;
  int pieces_;
  std::vector<double> pairs_;
};

double as_double(dim_t n) {
  return static_cast<double>(n);
}

// Both ways by sizes alone.
class Estimate {
 public:
  Estimate(const SpreadShape& shape, const Mask& mask, const SpreadCosts& costs)
      : s_(shape), costs_(costs), mask_(mask), pairs_(shape, mask) {
    flops_of_pair_ = 2.0 * as_double(s_.num_heads * (s_.head_dim + s_.v_dim));
    if (s_.backward) flops_of_pair_ *= kBackwardFlops;
    item_ = static_cast<double>(item_size(s_.dtype));
    sum_ = static_cast<double>(item_size(s_.dtype == DType::f64 ? DType::f64 : DType::f32));
  }

  SpreadPlan::Way ring() const {
    SpreadPlan::Way way;
    for (int r = 0; r < s_.processes; ++r) {
      double flops = 0.0;
      double bytes = 0.0;
      for (int step = 0; step < s_.processes; ++step) {
        flops += step_flops(r, step);
        bytes += step_bytes(r, step);
      }
      way.flops = std::max(way.flops, flops);
      way.bytes = std::max(way.bytes, bytes);
      way.memory = std::max(way.memory, ring_memory(r));
    }
    for (int step = 0; step < s_.processes; ++step) way.seconds += step_seconds(step);
    if (s_.processes > 1) {
      way.messages = s_.processes - 1 + (s_.backward ? s_.processes : 0);
      // The last gradients come home when nothing is left to compute.
      if (s_.backward) way.seconds += costs_.latency + sum_bytes(most_rows()) / costs_.bandwidth;
    }
    return way;
  }

  SpreadPlan::Way heads() const {
    SpreadPlan::Way way;
    if (!mask_.tensors.empty()) {
      way.refusal = "a process has keep, drop and bias for its own query rows only";
    }
    const Share most = share_of(s_.num_kv_heads, 0, s_.processes);
    way.flops =
        flops_of_pair_ * pairs_.all() * as_double(most.count()) / as_double(s_.num_kv_heads);
    for (int r = 0; r < s_.processes; ++r) {
      way.bytes = std::max(way.bytes, heads_bytes(r));
      way.memory = std::max(way.memory, heads_memory(r));
    }
    // q, k, v there, context and lse back; on the way back context, dcontext and lse go there, too.
    constexpr double kForward = 5.0;
    constexpr double kBackward = 9.0;
    way.messages = (s_.backward ? kBackward : kForward) * (s_.processes - 1);
    way.seconds =
        way.flops / costs_.flops + way.messages * costs_.latency + way.bytes / costs_.bandwidth;
    return way;
  }

 private:
  dim_t rows_of(int rank) const { return ring_share(s_.tokens, rank, s_.processes).tokens(); }
  dim_t most_rows() const { return rows_of(0); }
  // k and v of so many tokens, as they are and as sums.
  double keys_of(dim_t rows) const {
    return as_double(s_.batch * s_.num_kv_heads * rows * (s_.head_dim + s_.v_dim));
  }
  double key_bytes(dim_t rows) const { return item_ * keys_of(rows); }
  double sum_bytes(dim_t rows) const { return sum_ * keys_of(rows); }

  double step_flops(int rank, int step) const {
    return flops_of_pair_ * pairs_.between(rank, ring_owner(rank, step, s_.processes));
  }

  // Sent while that step is computed: its own keys, and the gradients of the step before.
  double step_bytes(int rank, int step) const {
    if (s_.processes == 1) return 0.0;
    const double keys = step + 1 < s_.processes ? key_bytes(rows_of(rank)) : 0.0;
    const dim_t rows = rows_of(ring_owner(rank, step, s_.processes));
    return keys + (s_.backward ? sum_bytes(rows) : 0.0);
  }

  // The slowest holds up the others, unless they help it.
  double ring_speed() const {
    const bool mean = costs_.mean_flops > 0.0 && !s_.backward && has_help();
    return mean ? costs_.mean_flops : costs_.flops;
  }

  // Steps are equally long for all, but for a token.
  double step_seconds(int step) const {
    double seconds = 0.0;
    for (int r = 0; r < s_.processes; ++r) {
      double message = 0.0;
      if (step + 1 < s_.processes) {
        message = costs_.latency + step_bytes(r, step) / costs_.bandwidth;
      }
      seconds = std::max({seconds, step_flops(r, step) / ring_speed(), message});
    }
    return seconds;
  }

  // Do processes that are done attend for others?
  bool has_help() const {
    const double rows = as_double(s_.tokens) / (2.0 * s_.processes);
    return s_.processes > 1 && mask_.tensors.empty() &&
           RingHelp::pays_for(flops_of_pair_ * as_double(s_.batch) * rows * rows);
  }

  // Keys of its own, at hand and on their way; a piece's context and lse before they join. With
  // help three times as much that comes back, and of rows what RingHelp::has_room lets leave.
  // Backwards sums in float32: dq, those of keys at hand, leaving and arriving, and a piece's own.
  double ring_memory(int rank) const {
    const dim_t rows = rows_of(rank);
    const dim_t piece = ring_share(s_.tokens, rank, s_.processes).early.count();
    const double held = key_bytes(rows) + std::min(s_.processes - 1, 2) * key_bytes(most_rows()) +
                        widened_memory(rows);
    if (!s_.backward) {
      const double result = sum_ * as_double(s_.batch * s_.num_heads * piece * (s_.v_dim + 1));
      if (!has_help()) return held + result;
      const double q = item_ * as_double(s_.batch * s_.num_heads * piece * s_.head_dim);
      return held + 4.0 * result + 2.5 * (q + key_bytes(piece));
    }
    const double queries = as_double(s_.batch * s_.num_heads * s_.head_dim);
    return held + sum_ * queries * as_double(rows + piece) +
           (s_.processes > 1 ? 3.0 : 2.0) * sum_bytes(most_rows()) + sum_bytes(piece);
  }
  // What has 16 bits in the type of sums: context, which is rounded at the end; backwards q,
  // context, dcontext, and the keys at hand.
  double widened_memory(dim_t rows) const {
    if (sum_ == item_) return 0.0;
    const double head_rows = as_double(s_.batch * s_.num_heads * rows);
    if (!s_.backward) return sum_ * head_rows * as_double(s_.v_dim);
    return sum_ * head_rows * as_double(s_.head_dim + 2 * s_.v_dim) + sum_bytes(most_rows());
  }

  // Heads that a process computes, as many times as they have numbers for a token.
  struct Widths {
    double q, kv;  // of one head of q, and of one of k
  };
  // What goes to those who compute a head, and what comes back of it.
  Widths there() const {
    const double extra = s_.backward ? item_ * as_double(2 * s_.v_dim) + sum_ : 0.0;
    return {item_ * as_double(s_.head_dim) + extra, item_ * as_double(s_.head_dim + s_.v_dim)};
  }
  Widths back() const {
    if (s_.backward) {
      return {item_ * as_double(s_.head_dim), item_ * as_double(s_.head_dim + s_.v_dim)};
    }
    return {item_ * as_double(s_.v_dim) + sum_, 0.0};
  }
  double width(const Widths& w, dim_t kv_heads) const {
    const dim_t q_heads = kv_heads * (s_.num_heads / s_.num_kv_heads);
    return as_double(s_.batch) * (w.q * as_double(q_heads) + w.kv * as_double(kv_heads));
  }

  double heads_bytes(int rank) const {
    const dim_t mine = share_of(s_.num_kv_heads, rank, s_.processes).count();
    const dim_t rows = rows_of(rank);
    return width(there(), s_.num_kv_heads - mine) * as_double(rows) +
           width(back(), mine) * as_double(s_.tokens - rows);
  }

  double heads_memory(int rank) const {
    const dim_t mine = share_of(s_.num_kv_heads, rank, s_.processes).count();
    return (width(there(), mine) + width(back(), mine)) * as_double(s_.tokens);
  }

  SpreadShape s_;
  SpreadCosts costs_;
  const Mask& mask_;
  Pairs pairs_;
  double flops_of_pair_;
  double item_, sum_;
};

std::string why_of(const SpreadShape& s, const SpreadPlan& plan) {
  if (!plan.heads.refusal.empty()) return format_text("heads cannot: {}", plan.heads.refusal);
  if (s.num_kv_heads < s.processes && plan.by == Spread::By::ring) {
    return format_text("heads would leave {} of {} processes without work",
                       s.processes - s.num_kv_heads, s.processes);
  }
  const bool by_ring = plan.by == Spread::By::ring;
  const SpreadPlan::Way& taken = by_ring ? plan.ring : plan.heads;
  const SpreadPlan::Way& other = by_ring ? plan.heads : plan.ring;
  return format_text("{:.3g} s instead of {:.3g} s", taken.seconds, other.seconds);
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The best of some, as others use the machine, too.
template <typename Work>
double best_of(int rounds, const Work& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < rounds; ++round) {
    const auto begin = Clock::now();
    work();
    best = std::min(best, seconds_since(begin));
  }
  return best;
}

// The mean over a moment: a ring takes what a core does on average, and the best is rare.
double measure_flops(int threads) {
  constexpr dim_t kHeads = 8;
  constexpr dim_t kTokens = 1024;
  constexpr dim_t kDim = 64;
  constexpr double kMoment = 0.25;
  const Tensor x = Tensor::full({kHeads, kTokens, kDim}, 0.1);
  const AttendOptions options{.threads = threads};
  attend(x, x, x, {}, options);  // memory is there afterwards
  double calls = 0.0;
  double seconds = 0.0;
  for (const auto begin = Clock::now(); seconds < kMoment; calls += 1.0) {
    attend(x, x, x, {}, options);
    seconds = seconds_since(begin);
  }
  return 4.0 * calls * as_double(kHeads * kTokens * kTokens * kDim) / seconds;
}

double measure_exchange(World& world, std::size_t bytes, int rounds) {
  const std::vector<std::byte> mine(bytes);
  std::vector<std::byte> theirs(bytes);
  return best_of(rounds, [&] { world.ring_exchange(mine, theirs)->wait(); });
}

std::vector<double> everyone(World& world, double mine) {
  std::vector<double> all;
  for (const std::string& text : world.gather(format_text("{:a}", mine))) {
    all.push_back(std::strtod(text.c_str(), nullptr));
  }
  return all;
}

double largest_of_all(World& world, double mine) {
  const std::vector<double> all = everyone(world, mine);
  return *std::max_element(all.begin(), all.end());
}

}  // namespace

SpreadCosts measure_costs(World& world, int threads) {
  constexpr std::size_t kSmall = 8;
  constexpr std::size_t kLarge = std::size_t{8} << 20;
  // All at once, as in a ring: processes of one machine share its memory.
  const std::vector<double> flops = everyone(world, measure_flops(threads));
  const double small = largest_of_all(world, measure_exchange(world, kSmall, 50));
  const double large = largest_of_all(world, measure_exchange(world, kLarge, 10));
  return {.flops = *std::min_element(flops.begin(), flops.end()),
          .bandwidth = static_cast<double>(kLarge - kSmall) / std::max(large - small, 1e-9),
          .latency = small,
          .mean_flops = std::accumulate(flops.begin(), flops.end(), 0.0) / world.size()};
}

SpreadPlan plan(const SpreadShape& shape, const Mask& mask, const SpreadCosts& costs) {
  const SpreadShape s = checked(shape);
  check_costs(costs);
  const Estimate estimate(s, mask, costs);
  SpreadPlan result;
  result.ring = estimate.ring();
  result.heads = estimate.heads();
  const bool heads_can = result.heads.refusal.empty();
  result.by = heads_can && result.heads.seconds < result.ring.seconds ? Spread::By::heads
                                                                      : Spread::By::ring;
  result.why = why_of(s, result);
  return result;
}

std::string SpreadPlan::to_string() const {
  std::string text = format_text("by {}: {}", name(by), why);
  for (const auto& [each, way] :
       {std::pair{Spread::By::ring, &ring}, {Spread::By::heads, &heads}}) {
    append_text(text,
                "\n{}: {:.3g} flops, {:.3g} bytes sent in {:.0f} messages, {:.3g} bytes of memory, "
                "{:.3g} s",
                name(each), way->flops, way->bytes, way->messages, way->memory, way->seconds);
  }
  return text;
}

const char* name(Spread::By by) {
  return by == Spread::By::ring ? "ring" : "heads";
}

}  // namespace cephalo
