#pragma once

namespace cephalo::cli {

// Ctrl-C, SIGTERM and SIGHUP while an object lives: the first is remembered, so that work can come
// to a good end; the next one that is not its echo ends the process at once. One object at a time.
class StopSignals {
 public:
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  static int caught();                                         // the signal, 0 while there was none
  static int exit_status(int signal) { return 128 + signal; }  // as a shell tells it
};

}  // namespace cephalo::cli
