#pragma once

#include <functional>

#include "cephalo/world/world.h"

namespace cephalo::cli {

// A verb's work in the world of all processes that mpirun started; work returns the status that the
// program ends with. Process 0 prints, the others are silent. An error on one of several is one
// line, and ends them all.
void run_in_world(const std::function<int(World&)>& work);

// For a verb that does not know of others: an error where mpirun started several processes.
void refuse_many_processes(const char* verb);

// The threads of each process: as many as were asked for, or its share of the cores of its machine.
// Where mpirun bound processes to fewer, process 0 says so.
void share_cores(World& world, int wanted);

// Throws, on every process, where one was built or called otherwise than process 0.
void require_same_program(World& world);

}  // namespace cephalo::cli
