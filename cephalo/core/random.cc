#include "cephalo/core/random.h"

#include <cmath>
#include <numbers>
#include <utility>

#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

// log, sin and cos as PyTorch's x86 builds compute them in normal_: single-precision polynomials
// in which every multiply-add rounds once. libm would differ in the last bit here and there.
float polynomial(float x, std::initializer_list<float> coefficients) {
  float y = 0.0F;
  bool first = true;
  for (const float c : coefficients) {
    y = first ? c : std::fma(y, x, c);
    first = false;
  }
  return y;
}

float torch_log(float value) {
  int exponent = 0;
  const float m = std::frexp(value, &exponent);  // m in [0.5, 1)
  float x = m - 1.0F;
  if (m < 0.707106781186547524F) {
    exponent -= 1;
    x = (m - 1.0F) + m;
  }
  const auto e = static_cast<float>(exponent);
  const float z = x * x;
  float y = polynomial(x, {7.0376836292e-2F, -1.1514610310e-1F, 1.1676998740e-1F, -1.2420140846e-1F,
                           1.4249322787e-1F, -1.6668057665e-1F, 2.0000714765e-1F, -2.4999993993e-1F,
                           3.3333331174e-1F});
  y = std::fma(y * x, z, e * -2.12194440e-4F);
  y = std::fma(z, -0.5F, y);
  return std::fma(e, 0.693359375F, x + y);
}

struct SinCos {
  float sin;
  float cos;
};

SinCos torch_sincos(float x) {  // x >= 0
  const int j = (static_cast<int>(x * 1.27323954473516F) + 1) & ~1;
  const auto octants = static_cast<float>(j);
  x = std::fma(octants, -0.78515625F, x);
  x = std::fma(octants, -2.4187564849853515625e-4F, x);
  x = std::fma(octants, -3.77489497744594108e-8F, x);
  const float z = x * x;
  float c = polynomial(z, {2.443315711809948e-5F, -1.388731625493765e-3F, 4.166664568298827e-2F});
  c = std::fma(c * z, z, -(z * 0.5F)) + 1.0F;
  float s = polynomial(z, {-1.9515295891e-4F, 8.3321608736e-3F, -1.6666654611e-1F});
  s = std::fma(s * z, x, x);
  if ((j & 2) != 0) std::swap(s, c);
  return {(j & 4) != 0 ? -s : s, ((j - 2) & 4) != 0 ? c : -c};
}

// Sixteen uniforms to sixteen normals, in place: element k pairs with element k + 8.
void box_muller_16(float* d) {
  for (int k = 0; k < 8; ++k) {
    const float radius = std::sqrt(-2.0F * torch_log(1.0F - d[k]));
    const SinCos angle = torch_sincos(static_cast<float>(2.0 * std::numbers::pi) * d[k + 8]);
    d[k] = radius * angle.cos;
    d[k + 8] = radius * angle.sin;
  }
}

void box_muller_16(double* d) {
  for (int k = 0; k < 8; ++k) {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - d[k]));
    const double theta = 2.0 * std::numbers::pi * d[k + 8];
    d[k] = radius * std::cos(theta);
    d[k + 8] = radius * std::sin(theta);
  }
}

// PyTorch fills 16 or more normals in blocks. A last block that is not full is drawn again as the
// last sixteen, over values that were finished.
template <typename T, typename Draw>
void fill_normal_blocks(T* values, dim_t count, Draw draw) {
  for (dim_t i = 0; i < count; ++i) values[i] = draw();
  for (dim_t i = 0; i + 16 <= count; i += 16) box_muller_16(values + i);
  if (count % 16 != 0) {
    T* last = values + count - 16;
    for (int k = 0; k < 16; ++k) last[k] = draw();
    box_muller_16(last);
  }
}

// Calls f(reference to each element) in index order.
template <typename T, typename F>
void for_each_element(const MutableTensorView& t, F&& f) {
  if (t.numel() == 0) return;  // [2^40, 0] has nothing in 2^40 rows
  if (t.rank() == 1) {
    T* data = t.mutable_data_as<T>();
    for (dim_t i = 0; i < t.dim(0); ++i) f(data[i * t.strides()[0]]);
    return;
  }
  if (t.rank() == 0) return f(*t.mutable_data_as<T>());
  for (dim_t i = 0; i < t.dim(0); ++i) for_each_element<T>(t[i], f);
}

constexpr std::uint32_t mul_high(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(a) * b) >> 32);
}

}  // namespace

TorchGenerator::TorchGenerator(std::uint64_t seed)
    : seed_(seed), engine_(static_cast<std::uint32_t>(seed)) {}

std::uint64_t TorchGenerator::random64() {
  const std::uint64_t high = random();
  return (high << 32) | random();
}

void TorchGenerator::uniform(const MutableTensorView& out, double from, double to) {
  if (out.dtype() == DType::f64) {
    for_each_element<double>(out, [&](double& x) { x = uniform53() * (to - from) + from; });
    return;
  }
  const auto low = static_cast<float>(from);
  const float width = static_cast<float>(to) - low;
  // One rounding: with a separate multiply and add half of the values differ in the last bit.
  for_each_element<float>(out, [&](float& x) { x = std::fma(uniform24(), width, low); });
}

double TorchGenerator::normal_one() {
  if (cached_normal_) return *std::exchange(cached_normal_, std::nullopt);
  const double u1 = uniform53();
  const double u2 = uniform53();
  const double radius = std::sqrt(-2.0 * std::log1p(-u2));
  const double theta = 2.0 * std::numbers::pi * u1;
  cached_normal_ = radius * std::sin(theta);
  return radius * std::cos(theta);
}

void TorchGenerator::normal(const MutableTensorView& out) {
  if (out.numel() < 16) {
    if (out.dtype() == DType::f64) {
      for_each_element<double>(out, [&](double& x) { x = normal_one(); });
    } else {
      for_each_element<float>(out, [&](float& x) { x = static_cast<float>(normal_one()); });
    }
    return;
  }
  require(out.is_contiguous(), "normal: 16 or more elements need contiguous memory");
  if (out.dtype() == DType::f64) {
    fill_normal_blocks(out.mutable_data_as<double>(), out.numel(), [&] { return uniform53(); });
  } else {
    fill_normal_blocks(out.mutable_data_as<float>(), out.numel(), [&] { return uniform24(); });
  }
}

Tensor TorchGenerator::rand(const Shape& shape, DType dtype) {
  Tensor out = Tensor::empty(shape, dtype);
  uniform(out, 0.0, 1.0);
  return out;
}

Tensor TorchGenerator::randn(const Shape& shape, DType dtype) {
  Tensor out = Tensor::empty(shape, dtype);
  normal(out);
  return out;
}

std::int64_t TorchGenerator::randint(std::int64_t low, std::int64_t high) {
  require(low < high, "randint: low ({}) must be < high ({})", low, high);
  const auto range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  const std::uint64_t draw = range >= (std::uint64_t{1} << 32) ? random64() : random();
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + draw % range);
}

std::vector<std::int64_t> TorchGenerator::randperm(std::int64_t count) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 32;  // one draw of 32 bits for each
  require(count >= 0 && count <= kLargest, "randperm: count ({}) must be in [0, {}]", count,
          kLargest);
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) order[static_cast<std::size_t>(i)] = i;
  for (std::int64_t i = 0; i + 1 < count; ++i) {
    const auto z = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count - i));
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(i + z)]);
  }
  return order;
}

Mcg31::Mcg31(std::uint32_t seed) : state_(seed % 0x7FFFFFFFU) {
  if (state_ == 0) state_ = 1;
}

bool Mcg31::keeps(double probability) {
  const bool kept = static_cast<double>(state_) / 2147483647.0 < probability;
  state_ = state_ * 1132489760U % 0x7FFFFFFFU;
  return kept;
}

PhiloxCounter philox(std::uint64_t key, PhiloxCounter c) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t high0 = mul_high(0xD2511F53U, c[0]);
    const std::uint32_t high1 = mul_high(0xCD9E8D57U, c[2]);
    c = {high1 ^ c[1] ^ k0, 0xCD9E8D57U * c[2], high0 ^ c[3] ^ k1, 0xD2511F53U * c[0]};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return c;
}

std::uint64_t mix_seed(std::uint64_t layer_seed, std::uint64_t call) {
  // splitmix64's finaliser over both numbers.
  std::uint64_t x = layer_seed + 0x9E3779B97F4A7C15U * (call + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

}  // namespace cephalo
