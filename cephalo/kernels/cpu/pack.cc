// Between tensors as callers keep them and the layouts that register tiles read.
#include "cephalo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cephalo/kernels/cpu/pack.cc"
#include <hwy/foreach_target.h>

#include "cephalo/kernels/cpu/dispatch.h"
#include "cephalo/kernels/cpu/simd-inl.h"
#include "cephalo/kernels/tables.h"

HWY_BEFORE_NAMESPACE();
namespace cephalo::kernels::HWY_NAMESPACE {

constexpr dim_t kChunk = 256;  // elements of a row that are widened at a time

// Four rows beside each other: to[k · to_stride + x] = rows[x][k] · factor(k), k < n.
// The one place where numbers cross lanes; blocks of 4 × 4, plain code for what is left.
template <typename T, typename Factor>
HWY_INLINE void transpose_4(const T* const* rows, dim_t n, const Factor& factor, T* to,
                            dim_t to_stride) {
  dim_t k = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(T) == 4) {
    const hn::FixedTag<T, 4> d;
    const hn::Repartition<std::uint64_t, decltype(d)> d64;
    for (; k + 4 <= n; k += 4) {
      const auto f = factor.load(d, k);
      const auto a = hn::Mul(hn::LoadU(d, rows[0] + k), f);
      const auto b = hn::Mul(hn::LoadU(d, rows[1] + k), f);
      const auto c = hn::Mul(hn::LoadU(d, rows[2] + k), f);
      const auto e = hn::Mul(hn::LoadU(d, rows[3] + k), f);
      const auto ab_low = hn::BitCast(d64, hn::InterleaveLower(d, a, b));
      const auto ab_high = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));
      const auto ce_low = hn::BitCast(d64, hn::InterleaveLower(d, c, e));
      const auto ce_high = hn::BitCast(d64, hn::InterleaveUpper(d, c, e));
      T* at = to + k * to_stride;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab_low, ce_low)), d, at);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab_low, ce_low)), d, at + to_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab_high, ce_high)), d, at + 2 * to_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab_high, ce_high)), d, at + 3 * to_stride);
    }
  }
#endif
  for (; k < n; ++k) {
    for (int x = 0; x < 4; ++x) to[k * to_stride + x] = rows[x][k] * factor.at(k);
  }
}

template <typename T>
struct UniformFactor {
  T value;
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, dim_t) const {
    return hn::Set(d, value);
  }
  HWY_INLINE T at(dim_t) const { return value; }
};

template <typename T>
struct LaneFactor {
  const T* values;
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, dim_t k) const {
    return hn::LoadU(d, values + k);
  }
  HWY_INLINE T at(dim_t k) const { return values[k]; }
};

// Reads rows as dense T, in chunks: where they lie if they are that, through a buffer otherwise.
template <typename T>
class RowReader {
 public:
  HWY_INLINE explicit RowReader(const Rows& from)
      : from_(from), direct_(from.dtype == DTypeOf<T>::value && from.stride == 1) {}

  // Four rows from `row` on, elements [begin, begin + n); rows past the end are zeros.
  HWY_INLINE void read_4(dim_t row, dim_t begin, dim_t n, const T** rows) {
    for (dim_t x = 0; x < 4; ++x) rows[x] = read(row + x, begin, n, buffer_[x]);
  }
  HWY_INLINE const T* read_1(dim_t row, dim_t begin, dim_t n) {
    return read(row, begin, n, buffer_[0]);
  }

 private:
  HWY_INLINE const T* read(dim_t row, dim_t begin, dim_t n, T* buffer) const {
    if (row >= from_.count) {
      for (dim_t k = 0; k < n; ++k) buffer[k] = T(0);
      return buffer;
    }
    if (direct_) return static_cast<const T*>(from_.address[row]) + begin;
    const auto size = from_.dtype == DType::f64 ? 8 : (from_.dtype == DType::f32 ? 4 : 2);
    const auto* first = static_cast<const char*>(from_.address[row]) + begin * from_.stride * size;
    widen_row(first, from_.dtype, from_.stride, n, buffer);
    return buffer;
  }

  const Rows& from_;
  bool direct_;
  HWY_ALIGN T buffer_[4][kChunk];
};

// Rows four by four into [dim][to_stride], group g of 4 rows at offset(g).
template <typename T, typename Offset>
HWY_INLINE void pack_groups(const Rows& from, T scale, dim_t groups, dim_t to_stride,
                            const Offset& offset, T* to) {
  RowReader<T> reader(from);
  const T* rows[4];
  for (dim_t g = 0; g < groups; ++g) {
    for (dim_t begin = 0; begin < from.dim; begin += kChunk) {
      const dim_t n = from.dim - begin < kChunk ? from.dim - begin : kChunk;
      reader.read_4(4 * g, begin, n, rows);
      transpose_4(rows, n, UniformFactor<T>{scale}, to + offset(g) + begin * to_stride, to_stride);
    }
  }
}

template <typename T>
HWY_NOINLINE void pack_broadcast(const Rows& from, T* to) {
  const dim_t groups = (from.count + kRows - 1) / kRows * (kRows / 4);
  pack_groups(
      from, T(1), groups, kRows,
      [&](dim_t g) { return g * 4 / kRows * kRows * from.dim + g * 4 % kRows; }, to);
}

template <typename T>
HWY_NOINLINE void pack_lanes(const Rows& from, T scale, dim_t width, T* to) {
  dim_t lane = width / 4 * 4;
  pack_groups(
      from, scale, width / 4, width, [](dim_t g) { return 4 * g; }, to);
  RowReader<T> reader(from);
  for (; lane < width; ++lane) {  // widths of scalar tiles
    for (dim_t begin = 0; begin < from.dim; begin += kChunk) {
      const dim_t n = from.dim - begin < kChunk ? from.dim - begin : kChunk;
      const T* row = reader.read_1(lane, begin, n);
      for (dim_t k = 0; k < n; ++k) to[(begin + k) * width + lane] = row[k] * scale;
    }
  }
}

template <typename T>
HWY_NOINLINE bool pack_values(const Rows& from, dim_t value_stride, T* to) {
  const hn::CappedTag<T, kRows> d;
  constexpr dim_t kStep = HWY_MIN(kRows, kLanes<T>);
  RowReader<T> reader(from);
  auto poison = hn::Zero(d);  // 0 · x is 0 exactly when x is finite
  T tail_poison = T(0);
  for (dim_t key = 0; key < from.count; ++key) {
    for (dim_t begin = 0; begin < from.dim; begin += kChunk) {
      const dim_t n = from.dim - begin < kChunk ? from.dim - begin : kChunk;
      const T* row = reader.read_1(key, begin, n);
      dim_t k = 0;
      T* at = to + begin / kRows * value_stride + key * kRows;
      for (; k + kRows <= n; k += kRows, at += value_stride) {
        for (dim_t part = 0; part < kRows; part += kStep) {
          const auto x = hn::LoadU(d, row + k + part);
          poison = hn::MulAdd(x, hn::Zero(d), poison);
          hn::StoreU(x, d, at + part);
        }
      }
      for (dim_t part = 0; k < n && part < kRows; ++part) {
        const T x = k + part < n ? row[k + part] : T(0);
        tail_poison += x * T(0);
        at[part] = x;
      }
    }
  }
  return hn::AllTrue(d, hn::Eq(poison, hn::Zero(d))) && tail_poison == T(0);
}

// Four rows at a time: their pieces of a slice are neighbours, so whole cache lines are written.
template <class D, typename T>
HWY_INLINE bool cut_rows(D d, const Rows& from, dim_t width, dim_t slice_stride, T* to) {
  constexpr dim_t kStep = static_cast<dim_t>(hn::MaxLanes(D()));
  const dim_t chunk = kChunk / width * width;
  RowReader<T> reader(from);
  const T* rows[4];
  auto poison = hn::Zero(d);  // 0 · x is 0 exactly when x is finite
  T tail_poison = T(0);
  for (dim_t row = 0; row < from.count; row += 4) {
    const dim_t count = from.count - row < 4 ? from.count - row : 4;
    for (dim_t begin = 0; begin < from.dim; begin += chunk) {
      const dim_t n = from.dim - begin < chunk ? from.dim - begin : chunk;
      reader.read_4(row, begin, n, rows);
      T* slice = to + begin / width * slice_stride + row * width;
      dim_t k = 0;
      for (; k + width <= n; k += width, slice += slice_stride) {
        for (dim_t x = 0; x < count; ++x) {
          for (dim_t part = 0; part < width; part += kStep) {
            const auto value = hn::LoadU(d, rows[x] + k + part);
            poison = hn::MulAdd(value, hn::Zero(d), poison);
            hn::StoreU(value, d, slice + x * width + part);
          }
        }
      }
      for (dim_t x = 0; k < n && x < count; ++x) {
        for (dim_t part = 0; part < width; ++part) {
          const T value = k + part < n ? rows[x][k + part] : T(0);
          tail_poison += value * T(0);
          slice[x * width + part] = value;
        }
      }
    }
  }
  return hn::AllTrue(d, hn::Eq(poison, hn::Zero(d))) && tail_poison == T(0);
}

template <typename T>
HWY_NOINLINE bool pack_slices(const Rows& from, dim_t width, dim_t slice_stride, T* to) {
  if (width % kLanes<T> == 0) return cut_rows(Tag<T>(), from, width, slice_stride, to);
  return cut_rows(hn::CappedTag<T, kRows>(), from, width, slice_stride, to);
}

template <typename T>
HWY_NOINLINE bool copy_rows(const Rows& from, dim_t to_stride, T* to) {
  RowReader<T> reader(from);
  T poison = T(0);  // 0 · x is 0 exactly when x is finite
  for (dim_t r = 0; r < from.count; ++r, to += to_stride) {
    for (dim_t begin = 0; begin < from.dim; begin += kChunk) {
      const dim_t n = from.dim - begin < kChunk ? from.dim - begin : kChunk;
      const T* row = reader.read_1(r, begin, n);
      for (dim_t k = 0; k < n; ++k) {
        poison += row[k] * T(0);
        to[begin + k] = row[k];
      }
    }
    for (dim_t k = from.dim; k < to_stride; ++k) to[k] = T(0);
  }
  return poison == T(0);
}

// Lanes are added in order: one chain on every target of the same width.
template <typename T>
HWY_NOINLINE void row_products(const Rows& a, const Rows& b, T* products) {
  const Tag<T> d;
  RowReader<T> a_reader(a);
  RowReader<T> b_reader(b);
  for (dim_t r = 0; r < a.count; ++r) {
    Vec<T> sum = hn::Zero(d);
    T tail = T(0);
    for (dim_t begin = 0; begin < a.dim; begin += kChunk) {
      const dim_t n = a.dim - begin < kChunk ? a.dim - begin : kChunk;
      const T* x = a_reader.read_1(r, begin, n);
      const T* y = b_reader.read_1(r, begin, n);
      dim_t k = 0;
      for (; k + kLanes<T> <= n; k += kLanes<T>) {
        sum = hn::MulAdd(hn::LoadU(d, x + k), hn::LoadU(d, y + k), sum);
      }
      for (; k < n; ++k) tail += x[k] * y[k];
    }
    HWY_ALIGN T lanes[kLanes<T>];
    hn::Store(sum, d, lanes);
    for (const T lane : lanes) tail += lane;
    products[r] = tail;
  }
}

template <typename T>
HWY_INLINE void store_element(T value, void* to, dim_t at, DType dtype) {
  switch (dtype) {
    case DType::f32:
      static_cast<float*>(to)[at] = static_cast<float>(value);
      break;
    case DType::f64:
      static_cast<double*>(to)[at] = static_cast<double>(value);
      break;
    case DType::bf16:
      static_cast<BFloat16*>(to)[at] = to_bfloat16(static_cast<float>(value));
      break;
    default:
      static_cast<Float16*>(to)[at] = to_float16(static_cast<float>(value));
      break;
  }
}

template <typename T>
HWY_NOINLINE void unpack_lanes(const T* tile, dim_t width, const T* factor, const OutRows& to) {
  dim_t begin = 0;
  if (to.dtype == DTypeOf<T>::value && to.stride == 1) {
    T* out = static_cast<T*>(to.address);
    for (; begin + 4 <= to.dim; begin += 4) {
      const T* from = tile + begin * width;
      const T* const rows[4] = {from, from + width, from + 2 * width, from + 3 * width};
      transpose_4(rows, to.count, LaneFactor<T>{factor}, out + begin, to.row_stride);
    }
  }
  for (dim_t lane = 0; lane < to.count; ++lane) {
    for (dim_t k = begin; k < to.dim; ++k) {
      store_element(tile[k * width + lane] * factor[lane], to.address,
                    lane * to.row_stride + k * to.stride, to.dtype);
    }
  }
}

// bias[0 .. n) (+)= value, bits cleared where it is −inf: one vector of either layout. Two finite
// biases may add up to −inf.
template <typename T>
HWY_INLINE std::uint64_t add_bias_vector(Vec<T> value, bool first, T* bias) {
  const Tag<T> d;
  const Vec<T> hidden = hn::Set(d, static_cast<T>(-__builtin_inf()));
  const Vec<T> sum = first ? value : hn::Add(value, hn::LoadU(d, bias));
  const auto hides = hn::Or(hn::Eq(value, hidden), hn::Eq(sum, hidden));
  std::uint64_t bits = 0;
  hn::StoreMaskBits(d, hides, reinterpret_cast<std::uint8_t*>(&bits));
  hn::StoreU(hn::IfThenZeroElse(hides, sum), d, bias);
  return bits;
}

// Is every element −inf? Looked at before anything is moved: a mask given as a bias is half that.
template <typename T>
HWY_INLINE bool hides_all(const Rows& queries) {
  const Tag<T> d;
  if (queries.stride != 1 || queries.dtype != DTypeOf<T>::value) return false;
  const Vec<T> hidden = hn::Set(d, static_cast<T>(-__builtin_inf()));
  for (dim_t x = 0; x < queries.count; ++x) {
    const T* row = static_cast<const T*>(queries.address[x]);
    auto all = hn::Eq(hidden, hidden);
    dim_t k = 0;
    for (; k + kLanes<T> <= queries.dim; k += kLanes<T>) {
      all = hn::And(all, hn::Eq(hn::LoadU(d, row + k), hidden));
    }
    if (!hn::AllTrue(d, all)) return false;
    for (; k < queries.dim; ++k) {
      if (row[k] != static_cast<T>(-__builtin_inf())) return false;
    }
  }
  return true;
}

template <typename T>
HWY_NOINLINE void add_bias(const Rows& queries, dim_t width, bool first, T* bias,
                           std::uint64_t* visible) {
  const Tag<T> d;
  if (hides_all<T>(queries)) {
    for (dim_t k = 0; k < queries.dim; ++k) visible[k] = 0;
    if (first) {
      for (dim_t k = 0; k < queries.dim * width; ++k) bias[k] = T(0);
    }
    return;
  }
  constexpr dim_t kKeys = 32;  // transposed at a time
  HWY_ALIGN T block[kKeys * kMaxColumns * HWY_MAX(kLanes<T>, 4)];
  Rows part = queries;
  const auto size = queries.dtype == DType::f64 ? 8 : (queries.dtype == DType::f32 ? 4 : 2);
  const void* addresses[64];
  part.address = addresses;
  for (dim_t key = 0; key < queries.dim; key += kKeys) {
    part.dim = queries.dim - key < kKeys ? queries.dim - key : kKeys;
    for (dim_t x = 0; x < queries.count; ++x) {
      addresses[x] = static_cast<const char*>(queries.address[x]) + key * queries.stride * size;
    }
    pack_lanes<T>(part, T(1), width, block);
    for (dim_t k = 0; k < part.dim; ++k) {
      for (int c = 0; c * kLanes<T> < width; ++c) {
        const Vec<T> value = hn::LoadU(d, block + k * width + c * kLanes<T>);
        const std::uint64_t hidden =
            add_bias_vector(value, first, bias + (key + k) * width + c * kLanes<T>);
        visible[key + k] &= ~(hidden << (c * kLanes<T>));
      }
    }
  }
}

template <typename T>
HWY_NOINLINE void add_bias_rows(const Rows& queries, dim_t width, bool first, T* bias,
                                std::uint64_t* visible) {
  const Tag<T> d;
  RowReader<T> reader(queries);
  HWY_ALIGN T row[kMaxColumns * HWY_MAX(kLanes<T>, 4)] = {};
  for (dim_t x = 0; x < queries.count; ++x) {
    const T* from = reader.read_1(x, 0, queries.dim);
    if (queries.dim < width) {  // the last tile: nothing is read past the row
      for (dim_t k = 0; k < queries.dim; ++k) row[k] = from[k];
      from = row;
    }
    for (int c = 0; c * kLanes<T> < width; ++c) {
      const Vec<T> value = hn::LoadU(d, from + c * kLanes<T>);
      const std::uint64_t hidden = add_bias_vector(value, first, bias + x * width + c * kLanes<T>);
      visible[x] &= ~(hidden << (c * kLanes<T>));
    }
  }
}

template <typename T>
void fill_pack(AttendKernels<T, T>* table) {
  table->pack_broadcast = pack_broadcast<T>;
  table->pack_lanes = pack_lanes<T>;
  table->pack_values = pack_values<T>;
  table->pack_slices = pack_slices<T>;
  table->unpack_lanes = unpack_lanes<T>;
  table->copy_rows = copy_rows<T>;
  table->row_products = row_products<T>;
  table->add_bias = add_bias<T>;
  table->add_bias_rows = add_bias_rows<T>;
}

void pack_f32(AttendKernels<float, float>* table) {
  fill_pack(table);
}
#if HWY_HAVE_FLOAT64
void pack_f64(AttendKernels<double, double>* table) {
  fill_pack(table);
}
#endif

}  // namespace cephalo::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cephalo::kernels {
void add_pack_kernels(Isa isa, AttendKernels<float, float>* table) {
  CEPHALO_FOR_ISA(isa, pack_f32)(table);
}
void add_pack_kernels(Isa isa, AttendKernels<double, double>* table) {
  CEPHALO_FOR_ISA_F64(isa, pack_f64)(table);
}
}  // namespace cephalo::kernels
#endif
