#pragma once

// Inside the library only.
#include <cstddef>
#include <functional>
#include <string_view>

#include "cephalo/io/file.h"

namespace cephalo {

// A file of any size as text in blocks. take(text, last) says how many bytes it has used; the rest
// comes again at the beginning of the next block. Where it used none, the next block is longer.
// Read, not mapped: a corpus that another process cuts short is an error, and no memory is held
// but the block.
using TakeText = std::function<std::size_t(std::string_view text, bool last)>;
void read_in_blocks(const InputFile& file, const TakeText& take);

}  // namespace cephalo
