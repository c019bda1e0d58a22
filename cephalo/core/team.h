#pragma once

namespace cephalo {

// Threads that somebody else keeps, such as those of an OpenMP runtime. While a library computes
// with them, ours would share cores with workers that spin in wait for more.

// Calls body(context) on several threads at once, the calling one among them, and returns when all
// are done. How many there are is the team's affair: each asks for its share of the work.
using RunTeam = void (*)(void (*body)(void*), void* context);

// Regions run on this team from now on; nullptr: on threads of our own. A forked child has none.
void set_team(RunTeam run);

}  // namespace cephalo
