#include "cli/processes.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>

#include "cephalo/core/cpu.h"
#include "cephalo/core/format.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/version.h"
#include "cli/complaint.h"
#include "cli/silence.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

// Where all of them meet the same error, process 0 says it and ends the others meanwhile.
void let_process_0_speak(int rank) {
  if (rank == 0) return;
  const long milliseconds = 500 + 20L * std::min(rank, 20);
  const timespec nap{.tv_sec = 0, .tv_nsec = milliseconds * 1'000'000};
  nanosleep(&nap, nullptr);
}

// Cores that whoever started this process may run on: mpirun binds its children, not itself.
int cores_of_launcher() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(getppid(), sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

// The words that the program was called with, after its name.
std::string words_of_call() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string words(std::istreambuf_iterator<char>(file), {});
  std::replace(words.begin(), words.end(), '\0', ' ');
  return words.substr(std::min(words.size(), words.find(' ')));
}

}  // namespace

void run_in_world(const std::function<int(World&)>& work) {
  const auto world = open_world();
  int status = 0;
  try {
    if (world->rank() > 0) be_silent();
    status = work(*world);
    world->end();
  } catch (...) {
    if (world->size() == 1) throw;
    Complaint complaint = complaint_of_current_exception();
    let_process_0_speak(world->rank());
    if (!complaint.text.empty() && world->rank() > 0) {
      complaint.text =
          format_text("process {} of {}: {}", world->rank(), world->size(), complaint.text);
    }
    world->abort(complain(complaint));
  }
  if (status != 0) throw ExitStatus{status};
}

void refuse_many_processes(const char* verb) {
  const int size = launch_of_this_process().size;
  if (size <= 1) return;
  throw UsageError(format_text("mpirun started {} processes, but {} works in one", size, verb));
}

void share_cores(World& world, int wanted) {
  if (wanted > 0) return set_threads(wanted);
  if (world.size() == 1) return;
  const int allowed = threads();
  const int cores = std::max(allowed, cores_of_launcher());
  const int share = std::max(1, cores / world.processes_here());
  set_threads(std::min(allowed, share));
  if (!world.any(allowed < share)) return;
  print(
      format_text("mpirun bound processes to {} of the {} cores that each could have; mpirun "
                  "--bind-to none leaves them all\n",
                  allowed, share));
}

void require_same_program(World& world) {
  world.require_same("the build", "cephalo " CEPHALO_VERSION " by " __VERSION__);
  world.require_same("the instruction set", name(current_isa()));
  world.require_same("the command", words_of_call());
}

}  // namespace cephalo::cli
