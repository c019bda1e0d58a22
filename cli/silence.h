#pragma once

namespace cephalo::cli {

// From now on print, warn and show_status say nothing: another process of many speaks for all.
void be_silent();

}  // namespace cephalo::cli
