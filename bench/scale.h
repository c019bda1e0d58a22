#pragma once

// What the rows of bench/scale.py have in common.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "cephalo/world/world.h"

namespace cephalo::scale {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin);

double peak_bytes();

// What every process brings along, by rank, and the most.
std::vector<double> everyone(World& world, double mine);
double largest(World& world, double mine);

// Seconds of the slowest process, from a moment at which all are there.
double seconds_of(World& world, const std::function<void()>& work);

// Flops a second of every process while all compute, for half a second. Cores of a virtual machine
// differ, and each run has others: rows have the speeds of their own processes.
std::vector<double> speeds(World& world);

std::string list_of(const std::vector<double>& numbers);

struct Words {
  int argc;
  char** argv;
  std::int64_t number(int n, std::int64_t otherwise) const {
    return n < argc ? std::strtoll(argv[n], nullptr, 10) : otherwise;
  }
  std::string word(int n) const { return n < argc ? argv[n] : ""; }
};

// rows: what follows the common beginning of the line
void print_row(World& world, const Words& words, const std::string& rows);

void run_attend(World& world, const Words& words);
void run_account(World& world, const Words& words);

}  // namespace cephalo::scale
