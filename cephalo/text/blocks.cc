#include "cephalo/text/blocks.h"

#include <algorithm>
#include <string>

namespace cephalo {

void read_in_blocks(const InputFile& file, const TakeText& take) {
  constexpr std::size_t kBlock = std::size_t{1} << 20;
  std::string block(std::min<std::size_t>(kBlock, static_cast<std::size_t>(file.size())), '\0');
  std::int64_t read = 0;
  std::size_t kept = 0;  // of the block before
  while (read < file.size() || kept > 0) {
    // A piece that fills half of the block: doubling keeps the whole linear.
    if (2 * kept > block.size()) block.resize(2 * block.size());
    const auto more =
        std::min<std::int64_t>(static_cast<std::int64_t>(block.size() - kept), file.size() - read);
    file.read(read, block.data() + kept, more);
    read += more;
    const bool last = read == file.size();
    const std::string_view text(block.data(), kept + static_cast<std::size_t>(more));
    const std::size_t used = last ? (take(text, true), text.size()) : take(text, false);
    kept = text.size() - used;
    std::copy(text.begin() + static_cast<std::ptrdiff_t>(used), text.end(), block.begin());
  }
}

}  // namespace cephalo
