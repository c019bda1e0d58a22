#include "cli/progress_bar.h"

#include "cephalo/core/format.h"
#include "cli/terminal.h"

namespace cephalo::cli {

void ProgressBar::show(std::size_t done, std::size_t all) {
  using std::chrono::milliseconds;
  constexpr milliseconds kQuiet{300};  // what takes no longer needs no bar
  constexpr milliseconds kBetween{50};
  constexpr std::size_t kWidth = 30;
  const auto now = std::chrono::steady_clock::now();
  if (now - begin_ < kQuiet) return;
  if (done == all) return show_status("");
  if (now - last_ < kBetween) return;
  last_ = now;
  const std::size_t filled = done * kWidth / all;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const double left = seconds / static_cast<double>(done) * static_cast<double>(all - done);
  show_status(format_text("{} [{}{}] {} of {}, {:.0f} s left", what_, std::string(filled, '#'),
                          std::string(kWidth - filled, '.'), done, all, left));
}

}  // namespace cephalo::cli
