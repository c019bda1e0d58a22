#pragma once

// Inside the library and its program only.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cephalo {

// Of `names` the one that `wrong` was probably meant to be: the first that becomes it by the fewest
// changes of a letter; "" if it takes `limit` or more.
std::string nearest_name(std::string_view wrong, const std::vector<std::string>& names,
                         std::size_t limit);

}  // namespace cephalo
