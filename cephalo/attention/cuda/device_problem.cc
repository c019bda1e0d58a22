#include "cephalo/attention/cuda/device_problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "cephalo/attention/cuda/document_spans.h"
#include "cephalo/core/random.h"
#include "cephalo/kernels/cuda/copy.h"

namespace cephalo {
namespace {

using kernels::cuda::MaskArgs;
using kernels::cuda::MaskPart;
using kernels::cuda::PositionRule;

constexpr std::size_t kCounterBytes = 4 * sizeof(unsigned);

// Numbers of the host that travel together; `add` says where they will be.
class Parcel {
 public:
  explicit Parcel(std::vector<std::byte>& bytes) : bytes_(bytes) {}

  template <typename T>
  std::size_t add(const T* numbers, std::size_t count) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + (count * sizeof(T) + 7) / 8 * 8);
    if (count > 0) std::memcpy(bytes_.data() + at, numbers, count * sizeof(T));
    return at;
  }

 private:
  std::vector<std::byte>& bytes_;
};

MaskPart part_of(const BoundMask::Part& part) {
  static_assert(static_cast<int>(MaskPart::Role::keep) == static_cast<int>(MaskTensor::Role::keep));
  static_assert(static_cast<int>(MaskPart::Role::bias) == static_cast<int>(MaskTensor::Role::bias));
  MaskPart result{part.view.data(), part.view.dtype(), static_cast<MaskPart::Role>(part.role), {}};
  std::copy(std::begin(part.stride), std::end(part.stride), std::begin(result.stride));
  return result;
}

std::vector<PositionRule> rules_of(const BoundMask& mask) {
  std::vector<PositionRule> rules;
  for (const BoundMask::Sequence& s : mask.sequences()) {
    rules.push_back({s.q_len, s.kv_len, s.shift, s.prefix, s.left, s.right});
  }
  return rules;
}

std::vector<double> slopes_of(const BoundMask& mask) {
  std::vector<double> slopes;
  for (dim_t h = 0; h < mask.extent().num_heads; ++h) slopes.push_back(mask.slope(h));
  const bool any = std::any_of(slopes.begin(), slopes.end(), [](double s) { return s != 0.0; });
  return any ? slopes : std::vector<double>();
}

// Where a mask's documents will be.
struct DocumentsAt {
  std::size_t q, kv, keys, queries, first_tile, q_one, kv_one;
  dim_t q_stride, kv_stride, blocks_stride, tiles_stride, kv_blocks_stride;
};

DocumentsAt add_documents(const BoundMask& mask, Parcel& parcel) {
  const DocumentNumbers d = number_documents(mask);
  const auto stride = [&](dim_t each) { return d.sequences > 1 ? each : 0; };
  return {.q = parcel.add(d.q.data(), d.q.size()),
          .kv = parcel.add(d.kv.data(), d.kv.size()),
          .keys = parcel.add(d.keys.data(), d.keys.size()),
          .queries = parcel.add(d.queries.data(), d.queries.size()),
          .first_tile = parcel.add(d.first_tile.data(), d.first_tile.size()),
          .q_one = parcel.add(d.q_one.data(), d.q_one.size()),
          .kv_one = parcel.add(d.kv_one.data(), d.kv_one.size()),
          .q_stride = stride(mask.extent().q_tokens),
          .kv_stride = stride(mask.extent().kv_tokens),
          .blocks_stride = stride(d.blocks),
          .tiles_stride = stride(d.tiles),
          .kv_blocks_stride = stride(d.kv_blocks)};
}

kernels::cuda::Dropout dropout_of(const AttendProblem& problem) {
  const AttendOptions& options = problem.options;
  if (options.dropout == 0.0) return {};
  const Place& place = problem.mask.place();
  return {.seed = options.seed,
          .threshold = static_cast<std::uint64_t>(std::ceil(options.dropout * 0x1p32)),
          .grown = dropout_scale(options.dropout, compute_type(problem.q.dtype())),
          .head_begin = static_cast<std::uint32_t>(place.heads.begin),
          .batch_begin = static_cast<std::uint32_t>(place.batch.begin)};
}

}  // namespace

kernels::cuda::Rows rows_of(const TensorView& t) {
  kernels::cuda::Rows rows{const_cast<void*>(t.data()), t.dtype(), {}};
  for (int axis = 0; axis < t.rank(); ++axis) rows.stride[axis] = t.strides()[axis];
  return rows;
}

const char* why_not_on_cuda(const AttendProblem& problem) {
  if (problem.cache != nullptr) return "a cache of keys and values lies on the host";
  if (problem.mask.has_device_parts()) {
    return "lengths, prefixes, documents and slopes are read from the host's memory";
  }
  if (problem.mask.parts().size() > kernels::cuda::kMostMaskParts) {
    return "the mask has more than 8 tensors";
  }
  if (problem.options.dropout > 0.0 && problem.options.dropout_stream != DropoutStream::counter) {
    return "dropout from a torch stream is drawn one number after another; the counter stream is "
           "drawn anywhere";
  }
  return nullptr;
}

DeviceProblem::DeviceProblem(const AttendProblem& problem, std::size_t scratch_bytes)
    : device_(problem.q.device().index) {
  cuda::check_earlier_calls();
  args_.sizes = {problem.q.dim(0), problem.q.dim(1), problem.k.dim(1), problem.q.dim(2),
                 problem.k.dim(2), problem.q.dim(3), problem.v.dim(3)};
  args_.q = rows_of(problem.q);
  args_.k = rows_of(problem.k);
  args_.v = rows_of(problem.v);
  args_.scale = problem.scale;
  args_.softcap = problem.options.softcap.value_or(0.0);
  args_.dropout = dropout_of(problem);
  send(problem, scratch_bytes);
}

// Counters, rules, slopes and ids of documents.
void DeviceProblem::send(const AttendProblem& problem, std::size_t scratch_bytes) {
  const BoundMask& mask = problem.mask;
  MaskArgs& to = args_.mask;
  Parcel parcel(numbers_);
  const unsigned zeros[4] = {};
  parcel.add(zeros, 4);
  const std::vector<PositionRule> rules = rules_of(mask);
  const std::size_t rules_at = parcel.add(rules.data(), rules.size());
  to.rule_stride = rules.size() > 1 ? 1 : 0;
  const std::vector<double> slopes = slopes_of(mask);
  const std::size_t slopes_at = parcel.add(slopes.data(), slopes.size());
  DocumentsAt documents{};
  if (mask.has_documents()) documents = add_documents(mask, parcel);
  scratch_ = std::make_unique<cuda::Scratch>(taken(numbers_.size()) + scratch_bytes);
  used_ = taken(numbers_.size());
  const std::byte* base = scratch_->data();
  to.rules = reinterpret_cast<const PositionRule*>(base + rules_at);
  if (!slopes.empty()) to.slopes = reinterpret_cast<const double*>(base + slopes_at);
  if (mask.has_documents()) {
    to.q_documents = reinterpret_cast<const std::int32_t*>(base + documents.q);
    to.kv_documents = reinterpret_cast<const std::int32_t*>(base + documents.kv);
    to.q_documents_stride = documents.q_stride;
    to.kv_documents_stride = documents.kv_stride;
    spans_ = {reinterpret_cast<const kernels::cuda::IndexSpan*>(base + documents.keys),
              reinterpret_cast<const kernels::cuda::IndexSpan*>(base + documents.queries),
              reinterpret_cast<const int*>(base + documents.first_tile),
              reinterpret_cast<const int*>(base + documents.q_one),
              reinterpret_cast<const int*>(base + documents.kv_one),
              documents.blocks_stride,
              documents.tiles_stride,
              documents.kv_blocks_stride};
  }
  for (const BoundMask::Part& part : mask.parts()) to.parts[to.part_count++] = part_of(part);
  to.kv_begin = mask.place().kv_tokens.begin;
  cuda::check(
      kernels::cuda::upload(scratch_->data(), numbers_.data(), numbers_.size(), current_stream()),
      "attend");
}

void DeviceProblem::set_results(const MutableTensorView& context, const MutableTensorView& lse) {
  args_.context = rows_of(context);
  if (lse.numel() > 0) args_.lse = rows_of(lse);
}

kernels::cuda::PairRules DeviceProblem::pair_rules() const {
  return {args_.mask, spans_, args_.dropout, static_cast<float>(args_.softcap)};
}

unsigned* DeviceProblem::counters() const {
  static_assert(kCounterBytes == 16);
  return reinterpret_cast<unsigned*>(scratch_->data());
}

void* DeviceProblem::take(std::size_t bytes) {
  void* at = scratch_->data() + used_;
  used_ += taken(bytes);
  return at;
}

}  // namespace cephalo
