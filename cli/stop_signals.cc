#include "cli/stop_signals.h"

#include <unistd.h>

#include <csignal>

namespace cephalo::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

volatile std::sig_atomic_t first_signal = 0;

extern "C" void on_signal(int signal) {
  if (first_signal != 0) _exit(StopSignals::exit_status(signal));
  first_signal = signal;
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
