#pragma once

#include <string>

namespace cephalo::cli {

inline constexpr int kBadData = 1;
inline constexpr int kBadUsage = 2;

// What an exception comes to: a line on stderr, or none where everything was said, and the status
// that the program ends with.
struct Complaint {
  std::string text;
  int status;
};
Complaint complaint_of_current_exception();

// Writes the line -> its status
int complain(const Complaint& complaint);

}  // namespace cephalo::cli
