#include "cephalo/attention/fused_layer.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "cephalo/attention/decode.h"
#include "cephalo/attention/fused.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/views.h"

namespace cephalo {
namespace {

DType steps_of(const Parameters& parameters) {
  return parameters.dtype() == DType::f64 ? DType::f64 : DType::f32;
}

// The rows of k below those of v, which lie next to each other.
TensorView below(const TensorView& k, const TensorView& v) {
  Shape shape = k.shape();
  shape[0] += v.dim(0);
  return {k.data(), k.dtype(), shape, k.strides()};
}

// Columns [begin, begin + heads · dim) of rows: [batch · tokens, width], as
// [batch, heads, tokens, dim]: split and transposed by strides alone.
MutableTensorView heads_of(const MutableTensorView& rows, dim_t batch, dim_t begin, dim_t heads,
                           dim_t dim) {
  const dim_t tokens = batch == 0 ? 0 : rows.dim(0) / batch;
  const dim_t width = rows.strides()[0];
  auto* first = static_cast<std::byte*>(rows.mutable_data()) +
                begin * static_cast<dim_t>(item_size(rows.dtype()));
  return {first, rows.dtype(), {batch, heads, tokens, dim}, {tokens * width, dim, width, 1}};
}

// Turns the heads of rows that a product has just finished. The angles of a position are computed
// once for all heads, and once for all sequences where those stand at the same positions.
class RowRotation {
 public:
  // q and k: [batch, heads, tokens, head_dim]; positions of token t of sequence b.
  RowRotation(const Rotary& rotary, dim_t head_dim) : rotary_(rotary), half_(head_dim / 2) {}

  struct Part {
    MutableTensorView heads;   // [batch, heads, tokens, head_dim]
    std::vector<dim_t> shift;  // position of token t of sequence b is t + shift[b]
  };
  void add(Part part) { parts_.push_back(std::move(part)); }

  // Angles for the positions in use, unless they are too scattered for a table.
  void build_table() {
    if (parts_.empty() || parts_[0].heads.numel() == 0) return;
    dim_t low = parts_[0].shift[0];
    dim_t high = low;
    for (const Part& part : parts_) {
      for (const dim_t shift : part.shift) {
        low = std::min(low, shift);
        high = std::max(high, shift + part.heads.dim(2) - 1);
      }
    }
    const dim_t rows = parts_[0].heads.dim(0) * parts_[0].heads.dim(2);
    first_ = low;
    count_ = high - low + 1 <= 2 * rows + 64 ? high - low + 1 : 0;
    table_.resize(static_cast<std::size_t>(2 * half_ * count_));
    const Region region{.pieces = count_, .flops = 100.0 * static_cast<double>(half_ * count_)};
    parallel_for(region, [&](dim_t row, std::byte*) {
      fill_angles(first_ + row, table_.data() + 2 * half_ * row);
    });
  }

  void turn_rows(dim_t begin, dim_t end) const {
    std::vector<double> scattered;
    if (count_ == 0) scattered.resize(static_cast<std::size_t>(2 * half_));
    for (const Part& part : parts_) {
      const dim_t tokens = part.heads.dim(2);
      for (dim_t row = begin; row < end; ++row) {
        const dim_t b = row / tokens;
        const dim_t position = row % tokens + part.shift[static_cast<std::size_t>(b)];
        const double* angles = table_.data() + 2 * half_ * (position - first_);
        if (count_ == 0) {
          fill_angles(position, scattered.data());
          angles = scattered.data();
        }
        part.heads.dtype() == DType::f64 ? turn<double>(part, b, row % tokens, angles)
                                         : turn<float>(part, b, row % tokens, angles);
      }
    }
  }

 private:
  // cos and sin of all pairs at one position. In float64: a float32 angle is off by 1e-4 at
  // position 2,000.
  void fill_angles(dim_t position, double* to) const {
    for (dim_t k = 0; k < half_; ++k) {
      const double angle =
          static_cast<double>(position) *
          std::pow(rotary_.base, -static_cast<double>(k) / static_cast<double>(half_));
      to[2 * k] = std::cos(angle);
      to[2 * k + 1] = std::sin(angle);
    }
  }

  template <typename T>
  void turn(const Part& part, dim_t b, dim_t t, const double* angles) const {
    const Strides& s = part.heads.strides();
    for (dim_t h = 0; h < part.heads.dim(1); ++h) {
      T* head = part.heads.mutable_data_as<T>() + b * s[0] + h * s[1] + t * s[2];
      for (dim_t k = 0; k < half_; ++k) {
        T& first = head[rotary_.interleaved ? 2 * k : k];
        T& second = head[rotary_.interleaved ? 2 * k + 1 : k + half_];
        const double x = static_cast<double>(first);
        const double y = static_cast<double>(second);
        first = static_cast<T>(x * angles[2 * k] - y * angles[2 * k + 1]);
        second = static_cast<T>(x * angles[2 * k + 1] + y * angles[2 * k]);
      }
    }
  }

  Rotary rotary_;
  dim_t half_;
  std::vector<Part> parts_;
  std::vector<double> table_;
  dim_t first_ = 0;
  dim_t count_ = 0;
};

// Memory between two steps, kept by the calling thread for its next call: tens of megabytes that
// would otherwise be mapped, cleared and unmapped each time.
class Workspace {
 public:
  MutableTensorView rows(int slot, const Shape& shape, DType dtype) {
    Tensor& kept = kept_[slot];
    const dim_t bytes = numel(shape) * static_cast<dim_t>(item_size(dtype));
    if (kept.numel() < bytes) kept = Tensor();  // given back before more is taken
    if (kept.numel() < bytes) kept = Tensor::empty({bytes}, DType::u8);
    return {kept.mutable_view().mutable_data(), dtype, shape};
  }

  // After a call: a very long input should not hold its memory for good.
  void keep_a_little() {
    constexpr dim_t kLittle = dim_t{256} << 20;
    for (Tensor& kept : kept_) {
      if (kept.numel() > kLittle) kept = Tensor();
    }
  }

 private:
  Tensor kept_[3];
};
thread_local Workspace workspace;

void turn_finished(const void* rotation, dim_t begin, dim_t end) {
  static_cast<const RowRotation*>(rotation)->turn_rows(begin, end);
}

// Where q, k and v lie after the projection, as heads, with the memory that holds them.
struct Projected {
  MutableTensorView rows;     // q, k and v of a token beside each other; or q alone
  MutableTensorView kv_rows;  // k and v of a second input
  MutableTensorView q, k, v;
};

class FusedLayer {
 public:
  FusedLayer(const Parameters& parameters, const PackedParameters& packed, const LayerCall& call)
      : sizes_(parameters.sizes()),
        packed_(packed),
        call_(call),
        steps_(steps_of(parameters)),
        batch_(call.x.dim(0)),
        tokens_(call.x.dim(1)) {}

  void run(const MutableTensorView& output) {
    if (call_.cache != nullptr) q_positions_ = positions_in_cache();
    // 1 to 3  PROJECT, SPLIT, TRANSPOSE
    const Projected in = project_inputs();
    // 4 and 5  ATTEND, CONCAT
    const MutableTensorView context = place_context(in, output);
    const AttendOutput heads{heads_of(context, batch_, 0, sizes_.num_heads, sizes_.v_dim)};
    if (call_.cache != nullptr) {
      call_.cache->append(in.k, in.v, call_.counts);
      attend_fused(make_problem(in.q, *call_.cache, call_.mask, call_.options, call_.name), heads);
    } else {
      attend_fused(make_problem(in.q, in.k, in.v, call_.mask, call_.options, call_.name), heads);
    }
    // 6  PROJECT
    if (sizes_.out_proj) {
      packed_.out->apply(context, output);
    } else if (context.data() != output.data()) {
      output.copy_from(context);
    }
    workspace.keep_a_little();
  }

 private:
  // [batch · tokens, context_width]: the output itself, or where q lies if that has the size, or
  // memory of its own.
  MutableTensorView place_context(const Projected& in, const MutableTensorView& output) const {
    const Shape merged{batch_ * tokens_, sizes_.context_width()};
    if (!sizes_.out_proj && output.dtype() == steps_) return output;
    if (sizes_.v_dim == sizes_.head_dim && tokens_ > kMostDecodeQueries) {
      return {in.rows.mutable_data(), steps_, merged, {in.rows.dim(1), 1}};
    }
    return workspace.rows(2, merged, steps_);
  }

  Projected project_inputs() const {
    const dim_t q_width = sizes_.q_width();
    const dim_t k_width = sizes_.k_width();
    const dim_t v_width = sizes_.v_width();
    Projected in;
    const MaybeCopied x = reshape(call_.x, {batch_ * tokens_, call_.x.dim(2)});
    if (!call_.kv) {
      in.rows = workspace.rows(0, {batch_ * tokens_, q_width + k_width + v_width}, steps_);
      in.q = heads_of(in.rows, batch_, 0, sizes_.num_heads, sizes_.head_dim);
      in.k = heads_of(in.rows, batch_, q_width, sizes_.num_kv_heads, sizes_.head_dim);
      in.v = heads_of(in.rows, batch_, q_width + k_width, sizes_.num_kv_heads, sizes_.v_dim);
      apply(*packed_.qkv, x, in.rows, rotations_of(in, true, true));
      return in;
    }
    const dim_t kv_tokens = call_.kv->dim(1);
    const MaybeCopied kv = reshape(*call_.kv, {batch_ * kv_tokens, call_.kv->dim(2)});
    in.rows = workspace.rows(0, {batch_ * tokens_, q_width}, steps_);
    in.kv_rows = workspace.rows(1, {batch_ * kv_tokens, k_width + v_width}, steps_);
    in.q = heads_of(in.rows, batch_, 0, sizes_.num_heads, sizes_.head_dim);
    in.k = heads_of(in.kv_rows, batch_, 0, sizes_.num_kv_heads, sizes_.head_dim);
    in.v = heads_of(in.kv_rows, batch_, k_width, sizes_.num_kv_heads, sizes_.v_dim);
    apply(*packed_.q, x, in.rows, rotations_of(in, true, false));
    apply(*packed_.kv, kv, in.kv_rows, rotations_of(in, false, true));
    return in;
  }

  void apply(const PackedLinear& linear, const TensorView& x, const MutableTensorView& to,
             std::optional<RowRotation> rotation) const {
    if (rotation) rotation->build_table();
    linear.apply(x, to, rotation ? turn_finished : nullptr, rotation ? &*rotation : nullptr);
  }

  std::optional<RowRotation> rotations_of(const Projected& in, bool q, bool k) const {
    if (!call_.rotary) return std::nullopt;
    RowRotation rotation(*call_.rotary, sizes_.head_dim);
    if (q) rotation.add({in.q, q_shifts(in)});
    if (k) rotation.add({in.k, k_shifts()});
    return rotation;
  }

  // Whatever attend would refuse is refused here, before the cache changes.
  std::vector<dim_t> positions_in_cache() const {
    const CacheTokens after = tokens_after(*call_.cache, tokens_, call_.counts, call_.name);
    return check_before_append({batch_, sizes_.num_heads, tokens_, sizes_.head_dim}, steps_,
                               *call_.cache, after, call_.mask, call_.options, call_.name);
  }

  std::vector<dim_t> k_shifts() const {
    if (call_.cache != nullptr) return call_.cache->lengths();
    return std::vector<dim_t>(static_cast<std::size_t>(batch_), 0);
  }

  std::vector<dim_t> q_shifts(const Projected& in) const {
    if (call_.cache != nullptr) return q_positions_;
    const MaskExtent extent{batch_, sizes_.num_heads, in.q.dim(2), in.k.dim(2)};
    const BoundMask bound(call_.mask, extent, call_.name);
    std::vector<dim_t> shifts;
    for (dim_t b = 0; b < batch_; ++b) shifts.push_back(bound.position(b, 0));
    return shifts;
  }

  const ParameterSizes& sizes_;
  const PackedParameters& packed_;
  const LayerCall& call_;
  DType steps_;
  dim_t batch_;
  dim_t tokens_;
  std::vector<dim_t> q_positions_;  // with a cache: where each sequence's first query stands
};

}  // namespace

PackedParameters pack_parameters(const Parameters& parameters, bool cross) {
  const DType steps = steps_of(parameters);
  PackedParameters packed;
  if (cross) {
    packed.q.emplace(parameters.q_weight(), parameters.q_bias(), steps);
    packed.kv.emplace(below(parameters.k_weight(), parameters.v_weight()),
                      parameters.sizes().qkv_bias ? below(parameters.k_bias(), parameters.v_bias())
                                                  : TensorView(),
                      steps);
  } else {
    packed.qkv.emplace(parameters.qkv_weight(), parameters.qkv_bias(), steps);
  }
  if (parameters.sizes().out_proj) {
    packed.out.emplace(parameters.out_weight(), parameters.out_bias(), steps);
  }
  return packed;
}

void run_fused_layer(const Parameters& parameters, const PackedParameters& packed,
                     const LayerCall& call, const MutableTensorView& output) {
  FusedLayer(parameters, packed, call).run(output);
}

}  // namespace cephalo
