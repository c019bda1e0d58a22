// A token file. The checksum at its end is made right first: it has no key, so a stranger's file
// has a right one, too.
#include <algorithm>
#include <string>
#include <vector>

#include "cephalo/text/token_file.h"
#include "cephalo/text/windows.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cephalo;
  const std::string bytes =
      fuzz::with_checksum(std::string(reinterpret_cast<const char*>(data), size));
  const auto* file_bytes = reinterpret_cast<const std::uint8_t*>(bytes.data());
  fuzz::read_as_file(file_bytes, bytes.size(), ".bin", [](const std::string& path) {
    const auto file = std::make_shared<TokenFile>(path);
    std::vector<TokenId> ids(static_cast<std::size_t>(file->tokens()));
    file->read(0, ids);
    WindowOptions options;
    options.context_length = 4;
    const Windows windows(file, options);
    std::vector<std::int64_t> row(5);
    for (std::int64_t number = 0; number < std::min<std::int64_t>(windows.rows_per_epoch(), 10);
         ++number) {
      windows.row(number, row);
    }
  });
  return 0;
}
