#include "cephalo/attention/cuda/hopper_forward.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "cephalo/attention/cuda/device_parts.h"
#include "cephalo/attention/cuda/document_spans.h"
#include "cephalo/attention/cuda/packed.h"
#include "cephalo/attention/cuda/tensor_map.h"
#include "cephalo/kernels/cuda/simple.h"

namespace cephalo {
namespace {

using kernels::cuda::HopperForward;
using kernels::cuda::Instance;
using kernels::cuda::LooksAt;

constexpr dim_t kMostColumns = 256, kMostFloatColumns = 128;

dim_t query_rows(const AttendProblem& p) {
  return p.q.dim(0) * p.q.dim(1) * p.q.dim(2);
}

// Rows that came out not finite, for the careful kernel.
std::size_t list_bytes(const AttendProblem& problem) {
  return DeviceProblem::taken(static_cast<std::size_t>(query_rows(problem)) * sizeof(unsigned));
}

// Does every query see every key, as far as positions go?
bool sees_all(const BoundMask& mask) {
  if (has_device_lengths(mask)) return false;
  for (const BoundMask::Sequence& s : mask.sequences()) {
    const bool all = s.q_len == mask.extent().q_tokens && s.span(0).end >= s.kv_len &&
                     s.kv_len == mask.extent().kv_tokens && s.span(s.q_len - 1).begin == 0;
    if (!all) return false;
  }
  return true;
}

bool shifts_fit(const BoundMask& mask) {
  const dim_t tokens = mask.whole().q_tokens + mask.whole().kv_tokens;
  const dim_t more = has_device_lengths(mask) ? tokens : 0;  // that lengths there may add
  for (const BoundMask::Sequence& s : mask.sequences()) {
    if (std::abs(s.shift) + more >= kernels::cuda::kFarthestShift) return false;
  }
  return true;
}

// The one tensor of a mask, if it is a bias for every pair of q's type that the copy engine can
// read: [batch | 1, num_heads | 1, q_tokens, kv_tokens]
std::optional<TensorView> bias_of_pairs(const AttendProblem& p) {
  if (p.mask.parts().size() != 1) return std::nullopt;
  const BoundMask::Part& part = p.mask.parts().front();
  if (part.role != MaskTensor::Role::bias || part.view.dtype() != p.q.dtype()) return std::nullopt;
  const dim_t sizes[4] = {part.stride[0] == 0 ? 1 : p.q.dim(0),
                          part.stride[1] == 0 ? 1 : p.q.dim(1), p.q.dim(2), p.k.dim(2)};
  const TensorView bias(
      part.view.data(), part.view.dtype(), {sizes[0], sizes[1], sizes[2], sizes[3]},
      {part.stride[0], part.stride[1], part.stride[2], part.stride[3]}, part.view.device());
  return fits_bias_map(bias) ? std::optional<TensorView>(bias) : std::nullopt;
}

// Are the tokens of every document known to be neighbours?
bool are_together(const BoundMask& mask) {
  return mask.has_documents() ? documents_are_together(mask) : device_documents_are_in_order(mask);
}

bool has_documents(const BoundMask& mask) {
  return mask.has_documents() || has_device_documents(mask);
}

// What a mask and options ask for beside positions.
LooksAt looks_at(const AttendProblem& p) {
  const bool has_parts = !p.mask.parts().empty();
  const bool slopes = has_slopes(p.mask), caps = p.options.softcap.has_value();
  const bool drops = p.options.dropout > 0.0;
  const int things = static_cast<int>(has_parts) + static_cast<int>(slopes) +
                     static_cast<int>(caps) + static_cast<int>(drops);
  if (things == 0 && !has_documents(p.mask)) {
    return sees_all(p.mask) ? LooksAt::nothing : LooksAt::positions;
  }
  if (things > 1 || (has_documents(p.mask) && !are_together(p.mask))) return LooksAt::pairs;
  if (has_parts) return bias_of_pairs(p) ? LooksAt::bias : LooksAt::pairs;
  if (caps) return LooksAt::softcap;
  // Dropout's own kernels have the keys of all rounds among their arguments.
  if (drops) return p.options.device_seed == nullptr ? LooksAt::dropout : LooksAt::pairs;
  return LooksAt::alibi;
}

// How a kernel reads its tensors.
struct ForwardOperands {
  OperandSize q, k, v;
  explicit ForwardOperands(const Instance& instance) {
    const kernels::cuda::ForwardBoxes boxes = forward_boxes(instance);
    q = {boxes.q_rows, instance.width, instance.parts};
    k = {boxes.kv_rows, instance.width, instance.parts};
    v = {boxes.kv_rows, instance.v_width, instance.parts};
  }
};

std::size_t scratch_bytes(const AttendProblem& p, const ForwardOperands& operands) {
  return list_bytes(p) + operand_bytes(p.q, operands.q) + operand_bytes(p.k, operands.k) +
         operand_bytes(p.v, operands.v);
}

const char* why_not_these_sizes(const AttendProblem& p) {
  if (p.q.numel() == 0 || p.k.numel() == 0 || p.v.numel() == 0)
    return "there is nothing to multiply";
  if (p.q.dim(3) > kMostColumns) return "head_dim is over 256";
  if (p.v.dim(3) > kMostColumns) return "v_dim is over 256";
  if (!is_16_bit_float(p.q.dtype()) && std::max(p.q.dim(3), p.v.dim(3)) > kMostFloatColumns) {
    return "head_dim or v_dim of float32 is over 128";
  }
  if (p.q.dim(2) >= kernels::cuda::kMostTokens || p.k.dim(2) >= kernels::cuda::kMostTokens) {
    return "there are 2^28 tokens or more";
  }
  constexpr dim_t kMostRows = dim_t{1} << 30;  // padded ones, and halves of them, are counted too
  const dim_t key_rows = p.k.dim(0) * p.k.dim(1) * p.k.dim(2);
  return query_rows(p) >= kMostRows || key_rows >= kMostRows ? "there are 2^30 rows or more"
                                                             : nullptr;
}

}  // namespace

const char* why_not_on_hopper(const AttendProblem& p) {
  if (const char* reason = why_not_on_cuda(p)) return reason;
  if (p.q.dtype() != DType::f32 && !is_16_bit_float(p.q.dtype())) {
    return "q is neither float32, bfloat16 nor float16";
  }
  if (const char* reason = why_not_these_sizes(p)) return reason;
  if (!(p.scale > 1e-30 && p.scale < 1e30)) return "the scale is not in (1e-30, 1e30)";
  if (p.options.softcap && !(*p.options.softcap > 1e-30 && *p.options.softcap < 1e30)) {
    return "softcap is not in (1e-30, 1e30)";
  }
  if (p.options.dropout > 0.0 && p.mask.place().kv_tokens.begin % 4 != 0) {
    return "dropout draws for four keys at once, and a rectangle begins between them";
  }
  return shifts_fit(p.mask) ? nullptr : "positions are 2^29 or more apart";
}

Instance instance_of(const AttendProblem& p) {
  const dim_t columns = std::max(p.q.dim(3), p.v.dim(3));
  const int width = columns <= 64 ? 64 : 128;
  if (!is_16_bit_float(p.q.dtype())) {
    const int parts = p.options.arithmetic == Arithmetic::bf16x3 ? 2 : 3;
    return {DType::bf16, width, width, parts, LooksAt::pairs};
  }
  if (columns <= 128) {
    // Of a smaller tile's queries fewer are of another document.
    return {p.q.dtype(), width, width, 1, looks_at(p), has_documents(p.mask)};
  }
  const bool is_narrow = p.q.dim(3) <= 192 && p.v.dim(3) <= 128;
  return {p.q.dtype(), is_narrow ? 192 : 256, is_narrow ? 128 : 256, 1, LooksAt::pairs};
}

kernels::cuda::BiasMap bias_map_of(const AttendProblem& p) {
  return make_bias_map(*bias_of_pairs(p));
}

std::size_t hopper_forward_scratch(const AttendProblem& p) {
  return scratch_bytes(p, ForwardOperands(instance_of(p)));
}

void attend_on_hopper(const AttendProblem& p, const AttendOutput& output) {
  const Instance instance = instance_of(p);
  const ForwardOperands operands(instance);
  const bool is_direct = instance.parts > 1;  // kernels write the rows of context themselves
  const DType dtype = is_direct ? output.context.dtype() : p.q.dtype();
  const std::size_t result_bytes = is_direct ? 0 : packed_bytes(output.context, dtype);
  DeviceProblem call(p, scratch_bytes(p, operands) + result_bytes);
  call.set_results(output.context, output.lse);
  MutableTensorView context = output.context;
  HopperForward args{};
  // Scores of what is hidden are never used, so k may hold NaN; and where v did, scores tell.
  const TensorView q = operand(p.q, operands.q, call), k = operand(p.k, operands.k, call);
  const TensorView v = operand(p.v, operands.v, call, {.clears = true, .marks = &k});
  args.q = operand_map(q, operands.q);
  args.k = operand_map(k, operands.k);
  args.v = operand_map(v, operands.v);
  if (is_direct) {
    args.context_rows = rows_of(context);
    args.v_columns = static_cast<int>(p.v.dim(3));
  } else {
    context = packed_result(output.context, dtype, call);
    args.context = make_tensor_map(context, {operands.q.rows, instance.v_width});
  }
  if (output.lse.numel() > 0) {
    args.lse = static_cast<float*>(output.lse.mutable_data());
    for (int axis = 0; axis < 3; ++axis) args.lse_stride[axis] = output.lse.strides()[axis];
  }
  args.rules = call.args().mask.rules;
  args.rule_stride = static_cast<int>(call.args().mask.rule_stride);
  args.next_tile = call.counters();
  args.careful = call.counters() + 1;
  args.careful_rows = static_cast<unsigned*>(call.take(list_bytes(p)));
  args.batch = static_cast<int>(p.q.dim(0));
  args.num_heads = static_cast<int>(p.q.dim(1));
  args.num_kv_heads = static_cast<int>(p.k.dim(1));
  args.q_tokens = static_cast<int>(p.q.dim(2));
  args.kv_tokens = static_cast<int>(p.k.dim(2));
  args.scale = static_cast<float>(p.scale);
  args.pairs = call.pair_rules();
  if (instance.looks_at == LooksAt::bias) args.bias = bias_map_of(p);
  cuda::check(attend_hopper(instance, args, current_stream()), "attend");
  write_back(output.context, context);
  cuda::check(kernels::cuda::attend_listed_rows(call.args(), {args.careful, args.careful_rows},
                                                call.next_counters(), current_stream()),
              "attend");
  call.launch("attend");
}

}  // namespace cephalo
