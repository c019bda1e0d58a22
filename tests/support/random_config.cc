#include "tests/support/random_config.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cephalo/core/random.h"
#include "cephalo/core/views.h"
#include "tests/support/mask_spec.h"
#include "tests/support/tensors.h"

namespace cephalo::testing {
namespace {

constexpr int kEqualNumbers = 6;  // a layout

}  // namespace

double largest_norm(const TensorView& t) {
  const Tensor dense = Tensor::copy(t, DType::f64);
  const dim_t dim = t.dim(3);
  double largest = 0.0;
  for (dim_t row = 0; row < dense.numel() / dim; ++row) {
    const double* numbers = dense.data_as<double>() + row * dim;
    largest = std::max(largest, std::inner_product(numbers, numbers + dim, numbers, 0.0));
  }
  return std::sqrt(largest);
}

RandomSource::RandomSource(const Shape& shape, DType dtype, TorchGenerator& generator) {
  const dim_t batch = shape[0], heads = shape[1], tokens = shape[2], dim = shape[3];
  const auto seed = generator.random64();
  layout = static_cast<int>(generator.randint(0, 9));
  switch (layout) {
    case 0:  // (batch, tokens, heads, dim)
      memory = normal({batch, tokens, heads, dim}, seed, dtype);
      view = transpose(memory, 1, 2);
      break;
    case 1:  // packed beside others
      memory = normal({batch, tokens, 3 * heads, dim}, seed, dtype);
      view = transpose(memory.slice(2, heads, 2 * heads), 1, 2);
      break;
    case 2:  // elements lie apart
      memory = normal({dim, tokens, heads, batch}, seed, dtype);
      view = permute(memory, {3, 2, 1, 0});
      break;
    case 3:  // a piece of a larger tensor
      memory = normal({batch + 1, heads, tokens + 3, dim + 2}, seed, dtype);
      view = memory.slice(0, 1, batch + 1).slice(2, 2, tokens + 2).slice(3, 1, dim + 1);
      break;
    case 4:  // one sequence or one head for all
      memory =
          normal({generator.keeps(0.5) ? 1 : batch, generator.keeps(0.5) ? 1 : heads, tokens, dim},
                 seed, dtype);
      view = broadcast_to(memory, shape);
      break;
    case 5:  // all tokens the same
      memory = normal({batch, heads, 1, dim}, seed, dtype);
      view = broadcast_to(memory, shape);
      break;
    case kEqualNumbers:
      memory = normal({batch, heads, tokens, 1}, seed, dtype);
      view = broadcast_to(memory, shape);
      break;
    default:
      memory = normal(shape, seed, dtype);
      view = memory;
  }
}

bool RandomSource::equal_numbers() const {
  return layout == kEqualNumbers;
}

dim_t random_tokens(TorchGenerator& generator) {
  switch (generator.randint(0, 4)) {
    case 0:
      return generator.randint(1, 10);
    case 1:
      return generator.randint(1, 201);
    default:
      return generator.randint(1, 80);
  }
}

std::vector<std::string> random_mask_parts(TorchGenerator& generator) {
  std::vector<std::string> parts;
  const auto& names = mask_part_names();
  const std::int64_t wanted = generator.randint(0, 4);
  for (std::int64_t n = 0; n < wanted; ++n) {
    const std::string& part = names[static_cast<std::size_t>(
        generator.randint(0, static_cast<std::int64_t>(names.size())))];
    const bool fits = std::all_of(parts.begin(), parts.end(), [&](const std::string& other) {
      return other != part && parts_combine(other, part);
    });
    if (fits) parts.push_back(part);
  }
  return parts;
}

double score_noise(const RandomSource& q, const RandomSource& k, double scale) {
  const double terms =
      q.equal_numbers() && k.equal_numbers() ? static_cast<double>(q.view.dim(3)) : 1.0;
  return terms * std::abs(scale) * largest_norm(q.view) * largest_norm(k.view) / 4.0;
}

}  // namespace cephalo::testing
