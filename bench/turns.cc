#include "bench/turns.h"

#include <algorithm>

#include "cephalo/core/format.h"
#include "cli/machine.h"

namespace cephalo::bench {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double timed_turn(const Side& side) {
  double warm = 0.0;
  while (warm < 0.020) warm += cli::seconds_of(side.run);
  double best = cli::seconds_of(side.run);
  for (int k = 1; k < 3; ++k) best = std::min(best, cli::seconds_of(side.run));
  return best;
}

double ratio_of(const Comparison& c, double ours, double theirs) {
  const double speed = c.ours.work / ours / (c.theirs.work / theirs);
  return c.ratio == Ratio::speed ? speed : 1.0 / speed;
}

std::string figure(const Comparison& c, const Side& side, double seconds) {
  return c.ratio == Ratio::time
             ? format_text("{:.3f} ms", 1e3 * seconds)
             : format_text("{:.1f} {}", side.work / seconds / c.unit_size, c.unit);
}

}  // namespace

Result compare(const Comparison& c, int rounds) {
  Result result{1e9, 1e9, 0.0, 0.0};
  std::vector<double> ratios;
  for (int round = 0; round < rounds; ++round) {
    const double ours = timed_turn(c.ours);
    const double theirs = timed_turn(c.theirs);
    result.best_ours = std::min(result.best_ours, ours);
    result.best_theirs = std::min(result.best_theirs, theirs);
    ratios.push_back(ratio_of(c, ours, theirs));
  }
  result.best = ratio_of(c, result.best_ours, result.best_theirs);
  result.median = median(ratios);
  return result;
}

Result compare_best(const Comparison& c, int rounds, int runs) {
  Result best = compare(c, rounds);
  for (int run = 1; run < runs; ++run) {
    const Result next = compare(c, rounds);
    const bool better = c.ratio == Ratio::speed ? next.best > best.best : next.best < best.best;
    if (better) best = next;
  }
  return best;
}

std::string to_string(const Comparison& c, const Result& r) {
  return format_text("{}, {} {}, best/best {:.3f}, median {:.3f}", figure(c, c.ours, r.best_ours),
                     c.theirs.name, figure(c, c.theirs, r.best_theirs), r.best, r.median);
}

}  // namespace cephalo::bench
