#include "cephalo/attention/cuda/device_parts.h"

#include <algorithm>

#include "cephalo/core/cuda_device.h"

namespace cephalo {
namespace {

using kernels::cuda::DeviceNumbers;
using kernels::cuda::IndexSpan;
using kernels::cuda::kDocumentKeys;
using kernels::cuda::kDocumentQueries;
using Role = DevicePart::Role;

const DevicePart* find_part(const BoundMask& mask, Role role) {
  for (const DevicePart& part : mask.device_parts()) {
    if (part.role == role) return &part;
  }
  return nullptr;
}

template <typename T>
const T* address(const TensorView& t, dim_t offset) {
  return static_cast<const T*>(t.data()) + offset;
}

// From an element on.
DeviceNumbers numbers_from(const TensorView& t, dim_t offset, dim_t by_sequence, dim_t by_token) {
  const bool is_wide = t.dtype() == DType::i64;
  const void* data = is_wide ? static_cast<const void*>(address<std::int64_t>(t, offset))
                             : address<std::int32_t>(t, offset);
  return {data, is_wide, {by_sequence, by_token}};
}

// A number for each sequence of the rectangle, or one for all.
DeviceNumbers numbers_of(const BoundMask& mask, Role role) {
  const DevicePart* part = find_part(mask, role);
  if (part == nullptr) return {};
  const dim_t step = part->view.numel() == 1 ? 0 : part->view.strides()[0];
  return numbers_from(part->view, mask.place().batch.begin * step, step, 0);
}

dim_t blocks_of(dim_t tokens) {
  return (tokens + kDocumentQueries - 1) / kDocumentQueries;
}
dim_t tiles_of(dim_t tokens) {
  return (tokens + kDocumentKeys - 1) / kDocumentKeys;
}

bool has_many(const DevicePart* part) {
  return part != nullptr && part->view.rank() == 2 && part->view.dim(0) > 1;
}

}  // namespace

bool has_device_lengths(const BoundMask& mask) {
  return find_part(mask, Role::prefix) != nullptr || find_part(mask, Role::kv_lengths) != nullptr;
}

bool has_device_slopes(const BoundMask& mask) {
  return find_part(mask, Role::slopes) != nullptr;
}

bool has_slopes(const BoundMask& mask) {
  if (has_device_slopes(mask)) return true;
  for (dim_t h = 0; h < mask.extent().num_heads; ++h) {
    if (mask.slope(h) != 0.0) return true;
  }
  return false;
}

bool has_device_documents(const BoundMask& mask) {
  return find_part(mask, Role::q_documents) != nullptr;
}

bool device_documents_are_in_order(const BoundMask& mask) {
  const DevicePart* part = find_part(mask, Role::q_documents);
  return part != nullptr && part->in_order;
}

dim_t rule_count(const BoundMask& mask) {
  const auto known = static_cast<dim_t>(mask.sequences().size());
  for (const Role role : {Role::prefix, Role::kv_lengths, Role::q_lengths}) {
    const DevicePart* part = find_part(mask, role);
    if (part != nullptr && part->view.numel() > 1) return mask.extent().batch;
  }
  return known;
}

void change_rules(const BoundMask& mask, const kernels::cuda::PositionRule* from,
                  kernels::cuda::PositionRule* rules) {
  const kernels::cuda::RuleParts parts{.q_lengths = numbers_of(mask, Role::q_lengths),
                                       .kv_lengths = numbers_of(mask, Role::kv_lengths),
                                       .prefix = numbers_of(mask, Role::prefix),
                                       .q_whole = mask.whole().q_tokens,
                                       .kv_whole = mask.whole().kv_tokens,
                                       .q_begin = mask.place().q_tokens.begin,
                                       .kv_begin = mask.place().kv_tokens.begin,
                                       .q_tokens = mask.extent().q_tokens,
                                       .kv_tokens = mask.extent().kv_tokens,
                                       .is_from_the_end = mask.is_from_the_end(),
                                       .count = rule_count(mask)};
  const dim_t from_stride = mask.sequences().size() > 1 ? 1 : 0;
  cuda::check(kernels::cuda::change_rules(rules, from, from_stride, parts, current_stream()),
              "attend");
}

void add_device_slopes(const BoundMask& mask, const double* from, double* slopes) {
  for (const DevicePart& part : mask.device_parts()) {
    if (part.role != Role::slopes) continue;
    const dim_t step = part.view.strides()[0];
    const auto* first = address<float>(part.view, mask.place().heads.begin * step);
    cuda::check(kernels::cuda::add_slopes(slopes, from, first, step, mask.extent().num_heads,
                                          current_stream()),
                "attend");
    from = slopes;
  }
}

DeviceDocuments::DeviceDocuments(const BoundMask& mask)
    : batch_begin_(mask.place().batch.begin),
      sequences_(1),
      in_order_(device_documents_are_in_order(mask)) {
  const DevicePart* q = find_part(mask, Role::q_documents);
  const DevicePart* kv = find_part(mask, Role::kv_documents);
  const dim_t batch = mask.extent().batch;
  sequences_ = has_many(q) || has_many(kv) ? batch : std::min<dim_t>(batch, 1);
  const dim_t q_tokens = mask.extent().q_tokens, kv_tokens = mask.extent().kv_tokens;
  q_ = side_of(*q, mask.place().q_tokens.begin, q_tokens);
  kv_ = side_of(*kv, mask.place().kv_tokens.begin, kv_tokens);
  keys_ = place(blocks_of(q_tokens), sizeof(IndexSpan));
  queries_ = place(tiles_of(kv_tokens), sizeof(IndexSpan));
  first_tile_ = place(blocks_of(q_tokens), sizeof(int));
}

// Room for so many of each sequence; returns where.
std::size_t DeviceDocuments::place(dim_t count, std::size_t each) {
  constexpr std::size_t kAligned = 16;
  const std::size_t at = bytes_;
  const auto all = static_cast<std::size_t>(sequences_ * count) * each;
  bytes_ += (all + kAligned - 1) / kAligned * kAligned;
  return at;
}

DeviceDocuments::Side DeviceDocuments::side_of(const DevicePart& part, dim_t begin, dim_t tokens) {
  const TensorView& t = part.view;
  const dim_t by_token = t.strides()[t.rank() - 1];
  const dim_t by_sequence = has_many(&part) ? t.strides()[0] : 0;
  const dim_t offset = part.is_ends ? 0 : batch_begin_ * by_sequence + begin * by_token;
  return {.ids = numbers_from(t, offset, by_sequence, by_token),
          .ends = part.is_ends ? t.numel() : 0,
          .begin = begin,
          .tokens = tokens,
          .numbers = place(tokens, sizeof(std::int32_t)),
          .documents = place(blocks_of(tokens), sizeof(IndexSpan)),
          .one = place(blocks_of(tokens), sizeof(int)),
          .spans = in_order_ ? place(tokens, sizeof(IndexSpan)) : 0};
}

kernels::cuda::DocumentIds::Side DeviceDocuments::side_in(std::byte* scratch,
                                                          const Side& side) const {
  return {.ids = side.ids,
          .ends = static_cast<std::int32_t>(side.ends),
          .begin = static_cast<std::int32_t>(side.begin),
          .numbers = reinterpret_cast<std::int32_t*>(scratch + side.numbers),
          .documents = reinterpret_cast<IndexSpan*>(scratch + side.documents),
          .one = reinterpret_cast<int*>(scratch + side.one),
          .spans = in_order_ ? reinterpret_cast<IndexSpan*>(scratch + side.spans) : nullptr,
          .tokens = static_cast<std::int32_t>(side.tokens)};
}

void DeviceDocuments::write(std::byte* scratch, kernels::cuda::MaskArgs& mask,
                            kernels::cuda::DocumentSpans& spans) const {
  const kernels::cuda::DocumentIds args{.q = side_in(scratch, q_),
                                        .kv = side_in(scratch, kv_),
                                        .keys = reinterpret_cast<IndexSpan*>(scratch + keys_),
                                        .queries = reinterpret_cast<IndexSpan*>(scratch + queries_),
                                        .first_tile = reinterpret_cast<int*>(scratch + first_tile_),
                                        .sequences = static_cast<std::int32_t>(sequences_)};
  cuda::check(kernels::cuda::number_documents(args, current_stream()), "attend");
  mask.q_documents = args.q.numbers;
  mask.kv_documents = args.kv.numbers;
  mask.q_documents_stride = stride(q_.tokens);
  mask.kv_documents_stride = stride(kv_.tokens);
  spans = {.keys = args.keys,
           .queries = args.queries,
           .first_tile = args.first_tile,
           .q_one = args.q.one,
           .kv_one = args.kv.one,
           .of_query = args.q.spans,
           .of_key = args.kv.spans,
           .blocks_stride = stride(blocks_of(q_.tokens)),
           .tiles_stride = stride(tiles_of(kv_.tokens)),
           .kv_blocks_stride = stride(blocks_of(kv_.tokens))};
}

}  // namespace cephalo
