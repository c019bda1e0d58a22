#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

// Which keys a query may look at, as data. A mask is built from the named parts below joined by &:
// what hides intersects, what biases adds, and no part silently wins over another.
//
// Positions: query i is at p(i) = i + offset + (bottom_right ? kv_len − q_len : 0), so that by
// default the last query sees the last key, as a cache needs.
enum class Align { bottom_right, top_left };

// No bound, for window.
inline constexpr dim_t unlimited = std::numeric_limits<dim_t>::max();

// A tensor inside a mask. It is read in place: an lvalue is borrowed and must outlive the mask, a
// temporary moves in.
struct MaskTensor {
  enum class Role { keep, drop, bias } role;
  TensorView view;
  std::shared_ptr<const Tensor> owner;
};

const char* name(MaskTensor::Role role);  // "keep"

// A part whose numbers are on a device, which must be that of q, k and v: an engine there reads
// them where they are. They are borrowed and not checked on the host: a number out of range
// counts as the nearest one inside.
struct DevicePart {
  enum class Role { prefix, kv_lengths, q_lengths, q_documents, kv_documents, slopes } role;
  TensorView view;
  bool in_order = false;  // of documents: as documents_in_order says
  bool is_ends = false;   // of documents: not ids but ends, as packed_sequences says
};

const char* name(DevicePart::Role role);  // "lengths(kv)"

// The parts of a mask as plain data. Build one with the functions below, not by hand.
class Mask {
 public:
  Mask() = default;  // hides nothing

  struct Positions {
    Align align = Align::bottom_right;
    dim_t offset = 0;
    bool operator==(const Positions&) const = default;
  };
  struct Window {
    dim_t left = unlimited;
    dim_t right = unlimited;
  };
  struct Lengths {
    std::vector<dim_t> kv;
    std::optional<std::vector<dim_t>> q;
  };
  struct Documents {
    Tensor q_ids;   // int64 [batch | 1, q_tokens]
    Tensor kv_ids;  // int64 [batch | 1, kv_tokens]
    bool same_tokens;
  };

  // The parts, as they were joined. Two causal or two window parts have become their intersection.
  std::optional<Positions> positions;
  std::optional<std::vector<dim_t>> causal_prefix;  // one for all, or one per batch
  std::optional<Window> window;
  std::optional<Lengths> lengths;
  std::shared_ptr<const Documents> documents;
  std::vector<MaskTensor> tensors;
  std::vector<std::vector<float>> alibi;  // slopes, one per head
  std::vector<DevicePart> device_parts;

  bool empty() const;
  bool is_only_causal() const;  // causal() and nothing else
  bool has_bias() const;        // a part adds to the scores, or may hide by −inf in a bias

  // "causal() & window(127, 0)"
  std::string to_string() const;
  // One character a pair, '#' visible, '.' hidden, '+' visible with a bias; large masks are drawn
  // by tiles, '+' where a tile holds both.
  std::string draw(dim_t q_tokens, dim_t kv_tokens, dim_t head = 0, dim_t batch = 0) const;
};

// Both: what hides intersects, what biases adds. An error where two parts contradict each other.
Mask operator&(const Mask& a, const Mask& b);

// Where a function below takes lists or tensors of numbers: int32 or int64 [batch] or [1], slopes
// float32 [num_heads]. A tensor of the host is read at once, one of a device becomes a DevicePart.
// The tensors' are templates, so that {} stays a list.
template <typename T>
concept NumbersTensor = std::convertible_to<const T&, TensorView>;
Mask causal_from(const TensorView& prefix);
Mask lengths_from(const TensorView& kv);
Mask lengths_from(const TensorView& kv, const TensorView& q);
Mask alibi_from(const TensorView& slopes);

// Sets p(i) for causal, window and alibi.
Mask positions(Align align, dim_t offset = 0);

// j <= p(i), or j < prefix: one prefix for all sequences or one per batch.
Mask causal(dim_t prefix = 0);
Mask causal(std::vector<dim_t> prefix);
Mask causal(const NumbersTensor auto& prefix) {
  return causal_from(prefix);
}

// p(i) − left <= j <= p(i) + right, both ends inside; `unlimited` for no bound.
Mask window(dim_t left, dim_t right);

// j < kv[b] and i < q[b].
Mask lengths(std::vector<dim_t> kv);
Mask lengths(std::vector<dim_t> kv, std::vector<dim_t> q);
Mask lengths(const NumbersTensor auto& kv) {
  return lengths_from(kv);
}
Mask lengths(const NumbersTensor auto& kv, const NumbersTensor auto& q) {
  return lengths_from(kv, q);
}

// Equal ids >= 0 see each other. ids: int32 or int64 [tokens] or [batch, tokens]; copied,
// unless they are on a device.
Mask documents(const TensorView& ids);
Mask documents(const TensorView& q_ids, const TensorView& kv_ids);
// The same, where you know that ids never fall and that those below 0 come last, as in sequences
// packed one after the other. Of ids on a device nobody can look that up: who relies on it is
// faster, and where it does not hold, who sees whom is not defined.
Mask documents_in_order(const TensorView& q_ids, const TensorView& kv_ids);

// Documents as sequences packed one after the other: tokens ends[n] to ends[n + 1] − 1 see each
// other, those behind the last end see nothing. Ends are int32 or int64 [sequences + 1], begin with
// 0 and never fall; they are on a device, since on the host documents says the same.
Mask packed_sequences(const TensorView& q_ends, const TensorView& kv_ends);

// t: bool or integers, [q, k], [heads|1, q|1, k|1] or [batch|1, heads|1, q|1, k|1].
Mask keep(const TensorView& t);  // may look where t is nonzero
Mask keep(Tensor&& t);
Mask drop(const TensorView& t);  // may look where t is zero
Mask drop(Tensor&& t);

// t: float32 or q's type, shaped as above: added to the scores; −inf hides.
Mask bias(const TensorView& t);
Mask bias(Tensor&& t);

// Adds −slopes[h] · |p(i) − j|; slopes >= 0, one per head. alibi_slopes gives the paper's.
Mask alibi(std::vector<float> slopes);
Mask alibi(const NumbersTensor auto& slopes) {
  return alibi_from(slopes);
}
std::vector<float> alibi_slopes(dim_t num_heads);

}  // namespace cephalo
#pragma GCC visibility pop
