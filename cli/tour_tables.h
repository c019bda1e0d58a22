#pragma once

#include <string>

namespace cephalo::cli {

// The measured numbers of docs/tour.md, a table each.
std::string tour_strides();
std::string tour_matrices();
std::string tour_scale();
std::string tour_mask();
std::string tour_heads();
std::string tour_split();
std::string tour_classes();
std::string tour_buffers();

}  // namespace cephalo::cli
