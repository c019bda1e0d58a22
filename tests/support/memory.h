#pragma once

#include <fstream>
#include <string>

namespace cephalo::testing {

// A line of /proc/self/status in MiB: "VmRSS" is resident now, "VmHWM" the most there was.
inline double resident_mib(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stod(line.substr(field.size() + 1)) / 1024.0;
  }
  return 0.0;
}

// The most memory that f needed beyond what was there.
template <typename F>
double extra_mib(const F& f) {
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak starts anew
  const double before = resident_mib("VmRSS");
  f();
  return resident_mib("VmHWM") - before;
}

}  // namespace cephalo::testing
