#include <charconv>
#include <cstdlib>
#include <string_view>

#include "cephalo/core/fail.h"
#include "cephalo/world/world.h"
#if defined(CEPHALO_MPI)
#include "cephalo/world/mpi/mpi_world.h"
#endif

namespace cephalo {
namespace {

// -1 where it is not set to a number
int number_in(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr) return -1;
  const std::string_view text = value;
  int number = -1;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), number);
  return wrong == std::errc() && end == text.data() + text.size() ? number : -1;
}

}  // namespace

Launch launch_of_this_process() {
  struct Variables {
    const char* rank;
    const char* size;
  };
  constexpr Variables kLaunchers[] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                      {"PMI_RANK", "PMI_SIZE"}};  // MPICH and its relatives
  for (const Variables& launcher : kLaunchers) {
    const Launch launch{number_in(launcher.rank), number_in(launcher.size)};
    if (launch.size >= 1 && launch.rank >= 0 && launch.rank < launch.size) return launch;
  }
  return {};
}

std::unique_ptr<World> open_world() {
  const Launch launch = launch_of_this_process();
  if (launch.size == 0) return world_of_one();
#if defined(CEPHALO_MPI)
  return open_mpi_world();
#else
  require(launch.size == 1,
          "mpirun started {} processes, but this cephalo was built without MPI; build it with "
          "-DCEPHALO_MPI=ON (tools/deps mpi installs what that needs)",
          launch.size);
  return world_of_one();
#endif
}

}  // namespace cephalo
