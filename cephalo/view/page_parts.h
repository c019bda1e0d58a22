#pragma once

// Inside the library only.
#include <string>
#include <string_view>

#include "cephalo/io/json_value.h"
#include "cephalo/view/look.h"

namespace cephalo {

// Weights of all heads that a page has at once: 512 tokens in 4 layers of 8 heads. A live page
// makes them after every key; above, a recorded one pools its maps.
inline constexpr dim_t kMostPageWeights = dim_t{1} << 23;

// A page on its way: the code and the engine of web/dist, with data in elements that are not run.
class PageWriter {
 public:
  explicit PageWriter(const Json& data);
  void add_block(const char* id, std::string_view bytes);  // in base64, with a checksum
  std::string finish() &&;

  // How long a page of such data is before its blocks, and how long a block is.
  static std::int64_t bytes_without_blocks(const Json& data);
  static std::int64_t block_bytes(std::int64_t bytes);

 private:
  std::string html_;
};

// "15.7 MB"; of little, "1.0 KB" or "512 bytes"
std::string size_text(std::int64_t bytes);

// {"name", "parameters", "dtype", "untrained"}; dtype: as the parameters are stored
Json page_model_json(const std::string& name, const Gpt& gpt, const std::string& dtype);

}  // namespace cephalo
