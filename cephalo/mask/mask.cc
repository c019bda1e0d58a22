#include "cephalo/mask/mask.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cephalo/core/common_device.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/views.h"

namespace cephalo {
namespace {

// Far beyond any token, near enough that adding two positions cannot wrap.
constexpr dim_t kFarthestOffset = dim_t{1} << 53;

// One part from a or b; `join` says what two of them become.
template <typename T, typename Join>
std::optional<T> join_parts(const std::optional<T>& a, const std::optional<T>& b, Join join) {
  if (a && b) return join(*a, *b);
  return a ? a : b;
}

std::vector<dim_t> smaller_prefix(const std::vector<dim_t>& a, const std::vector<dim_t>& b) {
  require(a.size() == b.size() || a.size() == 1 || b.size() == 1,
          "mask: causal() with {} prefixes does not join causal() with {}", a.size(), b.size());
  std::vector<dim_t> joined(std::max(a.size(), b.size()));
  for (std::size_t k = 0; k < joined.size(); ++k) {
    joined[k] = std::min(a[a.size() == 1 ? 0 : k], b[b.size() == 1 ? 0 : k]);
  }
  return joined;
}

Mask from_tensor(MaskTensor::Role role, const TensorView& t, std::shared_ptr<const Tensor> owner) {
  const bool is_bias = role == MaskTensor::Role::bias;
  const char* function = name(role);
  if (is_bias) {
    require_type(is_floating(t.dtype()),
                 "bias: {} is not a floating-point type; for a boolean mask use keep(t) or drop(t)",
                 name(t.dtype()));
  } else {
    require_type(
        !is_floating(t.dtype()),
        "{}: {} is neither bool nor an integer type; to add numbers to the scores use bias(t)",
        function, name(t.dtype()));
  }
  require(t.rank() >= 2 && t.rank() <= 4,
          "{}: shape {} must be [q, k], [heads, q, k] or [batch, heads, q, k]", function,
          t.shape());
  Mask mask;
  mask.tensors.push_back({role, t, std::move(owner)});
  return mask;
}

Mask from_owned_tensor(MaskTensor::Role role, Tensor&& t) {
  auto owner = std::make_shared<const Tensor>(std::move(t));
  const TensorView view = *owner;
  return from_tensor(role, view, std::move(owner));
}

void check_document_ids(const TensorView& ids) {
  require_type(ids.dtype() == DType::i64 || ids.dtype() == DType::i32,
               "documents: ids are {}, int32 or int64 is needed", name(ids.dtype()));
  require(ids.rank() == 1 || ids.rank() == 2,
          "documents: ids {} must be [tokens] or [batch, tokens]", ids.shape());
}

Tensor document_ids(const TensorView& ids) {
  Tensor copy = Tensor::copy(ids, DType::i64);
  if (ids.rank() == 2) return copy;
  const Shape one_row{1, ids.dim(0)};
  return std::move(copy).reshaped(one_row);
}

struct DocumentsKnown {
  bool same_tokens, in_order;
};

Mask from_documents(const TensorView& q_ids, const TensorView& kv_ids,
                    const DocumentsKnown& known) {
  check_document_ids(q_ids);
  check_document_ids(kv_ids);
  const Device device = common_device("documents", {{"q_ids", q_ids}, {"kv_ids", kv_ids}});
  Mask mask;
  if (!device.is_host()) {
    mask.device_parts = {{DevicePart::Role::q_documents, q_ids, known.in_order},
                         {DevicePart::Role::kv_documents, kv_ids, known.in_order}};
    return mask;
  }
  mask.documents = std::make_shared<const Mask::Documents>(
      Mask::Documents{document_ids(q_ids), document_ids(kv_ids), known.same_tokens});
  return mask;
}

// t: [sequences], int32 or int64, on the host -> its numbers
std::vector<dim_t> numbers_of(const TensorView& t) {
  const Tensor wide = Tensor::copy(t, DType::i64);
  const auto* first = wide.data_as<std::int64_t>();
  return {first, first + wide.numel()};
}

void check_numbers(DevicePart::Role role, const TensorView& t) {
  require_type(t.dtype() == DType::i64 || t.dtype() == DType::i32,
               "{}: numbers are {}, int32 or int64 is needed", name(role), name(t.dtype()));
  require(t.rank() == 1 && t.numel() > 0, "{}: {} must be [batch] or [1]", name(role), t.shape());
}

Mask from_device(std::vector<DevicePart> parts) {
  Mask mask;
  mask.device_parts = std::move(parts);
  return mask;
}

// Slopes add up; of the others an engine could not make one without reading them.
std::vector<DevicePart> join_device_parts(const Mask& a, const Mask& b) {
  std::vector<DevicePart> joined = a.device_parts;
  for (const DevicePart& part : b.device_parts) {
    const bool twice =
        part.role != DevicePart::Role::slopes &&
        std::any_of(a.device_parts.begin(), a.device_parts.end(),
                    [&](const DevicePart& other) { return other.role == part.role; });
    require(!twice, "mask: two {} on a device in one mask; join them into one", name(part.role));
    joined.push_back(part);
  }
  for (const DevicePart& part : joined) {
    const bool lengths = part.role == DevicePart::Role::kv_lengths && (a.lengths || b.lengths);
    const bool documents =
        part.role == DevicePart::Role::kv_documents && (a.documents || b.documents);
    require(!lengths && !documents,
            "mask: {} on the host and on {} in one mask; join them into one", name(part.role),
            part.view.device());
  }
  return joined;
}

}  // namespace

const char* name(MaskTensor::Role role) {
  static constexpr const char* kNames[] = {"keep", "drop", "bias"};
  return kNames[static_cast<int>(role)];
}

const char* name(DevicePart::Role role) {
  static constexpr const char* kNames[] = {"causal(prefix)",    "lengths(kv)",
                                           "lengths(q)",        "documents(q_ids)",
                                           "documents(kv_ids)", "alibi(slopes)"};
  return kNames[static_cast<int>(role)];
}

bool Mask::empty() const {
  return !causal_prefix && !window && !lengths && !documents && tensors.empty() && alibi.empty() &&
         device_parts.empty();
}

bool Mask::is_only_causal() const {
  return causal_prefix == std::vector<dim_t>{0} && !positions && !window && !lengths &&
         !documents && tensors.empty() && alibi.empty() && device_parts.empty();
}

bool Mask::has_bias() const {
  return !alibi.empty() || std::any_of(tensors.begin(), tensors.end(), [](const MaskTensor& t) {
    return t.role == MaskTensor::Role::bias;
  }) || std::any_of(device_parts.begin(), device_parts.end(), [](const DevicePart& part) {
    return part.role == DevicePart::Role::slopes;
  });
}

Mask operator&(const Mask& a, const Mask& b) {
  Mask joined;
  joined.positions = join_parts(a.positions, b.positions, [&](const auto& x, const auto& y) {
    require(x == y, "mask: two different position maps in one mask: {} and {}", a.to_string(),
            b.to_string());
    return x;
  });
  joined.causal_prefix = join_parts(a.causal_prefix, b.causal_prefix, smaller_prefix);
  joined.window = join_parts(a.window, b.window, [](const auto& x, const auto& y) {
    return Mask::Window{std::min(x.left, y.left), std::min(x.right, y.right)};
  });
  joined.lengths = join_parts(a.lengths, b.lengths, [](const auto& x, const auto&) {
    require(false, "mask: two lengths() in one mask; join them into one");
    return x;
  });
  require(!a.documents || !b.documents,
          "mask: two documents() in one mask; join their ids into one");
  joined.documents = a.documents ? a.documents : b.documents;
  joined.tensors = a.tensors;
  joined.tensors.insert(joined.tensors.end(), b.tensors.begin(), b.tensors.end());
  joined.alibi = a.alibi;
  joined.alibi.insert(joined.alibi.end(), b.alibi.begin(), b.alibi.end());
  joined.device_parts = join_device_parts(a, b);
  return joined;
}

Mask positions(Align align, dim_t offset) {
  require(-kFarthestOffset <= offset && offset <= kFarthestOffset,
          "positions: offset ({}) must be within ±2^53", offset);
  Mask mask;
  mask.positions = Mask::Positions{align, offset};
  return mask;
}

Mask causal(dim_t prefix) {
  return causal(std::vector<dim_t>{prefix});
}

Mask causal(std::vector<dim_t> prefix) {
  require(!prefix.empty(), "causal: no prefix given");
  for (const dim_t length : prefix) {
    require(length >= 0, "causal: prefix ({}) must be >= 0", length);
  }
  Mask mask;
  mask.causal_prefix = std::move(prefix);
  return mask;
}

Mask causal_from(const TensorView& prefix) {
  check_numbers(DevicePart::Role::prefix, prefix);
  if (prefix.device().is_host()) return causal(numbers_of(prefix));
  return from_device({{DevicePart::Role::prefix, prefix}});
}

Mask window(dim_t left, dim_t right) {
  for (const dim_t bound : {left, right}) {
    require(bound >= 0, "window: left ({}) and right ({}) must be >= 0; use unlimited for no bound",
            left, right);
  }
  Mask mask;
  mask.window = Mask::Window{left, right};
  return mask;
}

Mask lengths(std::vector<dim_t> kv) {
  Mask mask;
  mask.lengths = Mask::Lengths{std::move(kv), std::nullopt};
  return mask;
}

Mask lengths(std::vector<dim_t> kv, std::vector<dim_t> q) {
  Mask mask;
  mask.lengths = Mask::Lengths{std::move(kv), std::move(q)};
  return mask;
}

Mask lengths_from(const TensorView& kv) {
  check_numbers(DevicePart::Role::kv_lengths, kv);
  if (kv.device().is_host()) return lengths(numbers_of(kv));
  return from_device({{DevicePart::Role::kv_lengths, kv}});
}

Mask lengths_from(const TensorView& kv, const TensorView& q) {
  check_numbers(DevicePart::Role::kv_lengths, kv);
  check_numbers(DevicePart::Role::q_lengths, q);
  const Device device = common_device("lengths", {{"kv", kv}, {"q", q}});
  if (device.is_host()) return lengths(numbers_of(kv), numbers_of(q));
  return from_device({{DevicePart::Role::kv_lengths, kv}, {DevicePart::Role::q_lengths, q}});
}

Mask documents(const TensorView& ids) {
  return from_documents(ids, ids, {.same_tokens = true, .in_order = false});
}

Mask documents(const TensorView& q_ids, const TensorView& kv_ids) {
  return from_documents(q_ids, kv_ids, {.same_tokens = false, .in_order = false});
}

Mask documents_in_order(const TensorView& q_ids, const TensorView& kv_ids) {
  return from_documents(q_ids, kv_ids, {.same_tokens = false, .in_order = true});
}

Mask packed_sequences(const TensorView& q_ends, const TensorView& kv_ends) {
  for (const TensorView* ends : {&q_ends, &kv_ends}) {
    require_type(ends->dtype() == DType::i64 || ends->dtype() == DType::i32,
                 "packed_sequences: ends are {}, int32 or int64 is needed", name(ends->dtype()));
    require(ends->rank() == 1 && ends->numel() > 0,
            "packed_sequences: ends {} must be [sequences + 1]", ends->shape());
  }
  require(q_ends.numel() == kv_ends.numel(),
          "packed_sequences: there are {} ends of queries and {} of keys", q_ends.numel(),
          kv_ends.numel());
  const Device device =
      common_device("packed_sequences", {{"q_ends", q_ends}, {"kv_ends", kv_ends}});
  require(!device.is_host(),
          "packed_sequences: ends are on the host; documents(ids) says there who sees whom");
  return from_device({{DevicePart::Role::q_documents, q_ends, true, true},
                      {DevicePart::Role::kv_documents, kv_ends, true, true}});
}

Mask keep(const TensorView& t) {
  return from_tensor(MaskTensor::Role::keep, t, nullptr);
}
Mask keep(Tensor&& t) {
  return from_owned_tensor(MaskTensor::Role::keep, std::move(t));
}
Mask drop(const TensorView& t) {
  return from_tensor(MaskTensor::Role::drop, t, nullptr);
}
Mask drop(Tensor&& t) {
  return from_owned_tensor(MaskTensor::Role::drop, std::move(t));
}
Mask bias(const TensorView& t) {
  return from_tensor(MaskTensor::Role::bias, t, nullptr);
}
Mask bias(Tensor&& t) {
  return from_owned_tensor(MaskTensor::Role::bias, std::move(t));
}

Mask alibi(std::vector<float> slopes) {
  for (const float slope : slopes) {
    require(slope >= 0.0F && std::isfinite(slope), "alibi: slope ({}) must be >= 0 and finite",
            slope);
  }
  Mask mask;
  mask.alibi.push_back(std::move(slopes));
  return mask;
}

Mask alibi_from(const TensorView& slopes) {
  require_type(slopes.dtype() == DType::f32, "alibi: slopes are {}, float32 is needed",
               name(slopes.dtype()));
  require(slopes.rank() == 1, "alibi: slopes {} must be [num_heads]", slopes.shape());
  if (!slopes.device().is_host()) return from_device({{DevicePart::Role::slopes, slopes}});
  const Tensor dense = Tensor::copy(slopes);
  const auto* first = dense.data_as<float>();
  return alibi(std::vector<float>(first, first + dense.numel()));
}

std::vector<float> alibi_slopes(dim_t num_heads) {
  constexpr dim_t kMostHeads = dim_t{1} << 20;  // beyond this a number is a mistake
  require(num_heads > 0, "alibi_slopes: num_heads ({}) must be > 0", num_heads);
  require(num_heads <= kMostHeads, "alibi_slopes: num_heads ({}) must be at most {}", num_heads,
          kMostHeads);
  // A power of two p has 2^(-8/p), 2^(-16/p) ...; what is missing comes from every second slope of
  // the next power of two.
  dim_t power = 1;
  while (2 * power <= num_heads) power *= 2;
  std::vector<float> slopes;
  for (dim_t h = 0; h < num_heads; ++h) {
    const double step =
        h < power ? 8.0 / static_cast<double>(power) : 4.0 / static_cast<double>(power);
    const dim_t exponent = h < power ? h + 1 : 2 * (h - power) + 1;
    slopes.push_back(static_cast<float>(std::exp2(-step * static_cast<double>(exponent))));
  }
  return slopes;
}

}  // namespace cephalo
