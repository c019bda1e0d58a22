#include "cephalo/attention/layer/rotary.h"

#include <cmath>

#include "cephalo/core/parallel.h"
#include "cephalo/core/visit.h"

namespace cephalo {

void rotate(const MutableTensorView& heads, const Rotary& rotary, const std::vector<dim_t>& first) {
  const dim_t tokens = heads.dim(1);
  const dim_t num_heads = heads.dim(2);
  const dim_t half = heads.dim(3) / 2;
  const Strides& s = heads.strides();
  const Region region{.pieces = heads.dim(0) * tokens,
                      .flops = 50.0 * static_cast<double>(heads.numel()),
                      .scratch_bytes = 0};
  parallel_for(region, [&](dim_t piece, std::byte*) {
    const dim_t b = piece / tokens;
    const dim_t t = piece % tokens;
    const auto position = static_cast<double>(first[static_cast<std::size_t>(b)] + t);
    for (dim_t k = 0; k < half; ++k) {
      // In float64: a float32 angle is off by 1e-4 at position 2,000.
      const double angle =
          position * std::pow(rotary.base, -static_cast<double>(k) / static_cast<double>(half));
      const double cosine = std::cos(angle);
      const double sine = std::sin(angle);
      const dim_t one = (rotary.interleaved ? 2 * k : k) * s[3];
      const dim_t other = (rotary.interleaved ? 2 * k + 1 : k + half) * s[3];
      visit_dtype(heads.dtype(), [&](auto zero) {
        auto* token = static_cast<decltype(zero)*>(heads.mutable_data()) + b * s[0] + t * s[1];
        for (dim_t h = 0; h < num_heads; ++h) {
          auto* head = token + h * s[2];
          const double x = load(head[one]);
          const double y = load(head[other]);
          store(x * cosine - y * sine, head + one);
          store(x * sine + y * cosine, head + other);
        }
      });
    }
  });
}

}  // namespace cephalo
