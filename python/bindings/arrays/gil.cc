#include "bindings/arrays/gil.h"

#include <chrono>
#include <thread>

namespace cephalo::python {

void stay_until_the_process_ends() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace cephalo::python
