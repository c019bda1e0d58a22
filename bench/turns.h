#pragma once

#include <functional>
#include <string>
#include <vector>

// Two pieces of work in one process, by turns, on a machine that others use too.
namespace cephalo::bench {

struct Side {
  std::string name;
  double work;  // in units of the comparison: flops, bytes, tokens; 1 for a time
  std::function<void()> run;
};

// What a ratio tells: how much faster ours is, or how many times as long it takes.
enum class Ratio { speed, time };

struct Comparison {
  Side ours;
  Side theirs;
  Ratio ratio = Ratio::speed;
  const char* unit = "GF";  // of a speed: unit_size of work a second
  double unit_size = 1e9;
};

struct Result {
  double best_ours;    // seconds
  double best_theirs;  // seconds
  double best;         // best against best
  double median;       // of the rounds
};

// After every switch calls of 20 ms or more go untimed, since the other's threads still spin; then
// three are timed.
Result compare(const Comparison& comparison, int rounds);

// The best of several runs.
Result compare_best(const Comparison& comparison, int rounds, int runs);

// "135.0 GF, dnnl_sgemm 160.0 GF, best/best 0.844, median 0.840"
std::string to_string(const Comparison& comparison, const Result& result);

}  // namespace cephalo::bench
