#include "cli/stop_signals.h"

#include <unistd.h>

#include <csignal>
#include <ctime>

namespace cephalo::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

volatile std::sig_atomic_t first_signal = 0;
double first_time = 0.0;  // written by the handler alone

double seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // allowed in a handler
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

extern "C" void on_signal(int signal) {
  // timeout(1) sends its signal to the process and to its group: what comes that soon is the same.
  constexpr double kSameSignal = 0.3;
  if (first_signal == 0) {
    first_time = seconds();
    first_signal = signal;
  } else if (signal != first_signal || seconds() - first_time > kSameSignal) {
    _exit(StopSignals::exit_status(signal));
  }
}

void handle(void (*handler)(int)) {
  for (const int signal : kSignals) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;  // nohup asked for that
    action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace

StopSignals::StopSignals() {
  first_signal = 0;
  handle(on_signal);
}

StopSignals::~StopSignals() {
  handle(SIG_DFL);
}

int StopSignals::caught() {
  return first_signal;
}

}  // namespace cephalo::cli
