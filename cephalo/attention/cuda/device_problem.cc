#include "cephalo/attention/cuda/device_problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "cephalo/attention/cuda/device_parts.h"
#include "cephalo/attention/cuda/document_spans.h"
#include "cephalo/core/random.h"
#include "cephalo/kernels/cuda/copy.h"

namespace cephalo {
namespace {

using kernels::cuda::IndexSpan;
using kernels::cuda::MaskArgs;
using kernels::cuda::MaskPart;
using kernels::cuda::PositionRule;

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
  std::size_t size() const { return bytes_.size(); }

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

std::size_t add_rules(const BoundMask& mask, Parcel& parcel) {
  const std::size_t at = parcel.size();
  for (const BoundMask::Sequence& s : mask.sequences()) {
    const PositionRule rule{s.q_len, s.kv_len, s.shift, s.prefix, s.left, s.right};
    parcel.add(&rule, 1);
  }
  return at;
}

std::size_t add_slopes(const BoundMask& mask, Parcel& parcel) {
  const std::size_t at = parcel.size();
  for (dim_t h = 0; h < mask.extent().num_heads; ++h) {
    const double slope = mask.slope(h);
    parcel.add(&slope, 1);
  }
  return at;
}

}  // namespace

// Where a mask's documents will be: what is sent, and behind it what the device makes of it.
struct DeviceProblem::DocumentsAt {
  struct Side {
    std::size_t runs, runs_at, reaches, numbers, spans;
  };
  Side q, kv;
  std::size_t documents_at, keys, queries, first_tile, q_one, kv_one;
  dim_t sequences, blocks, tiles, kv_blocks;
  bool together;
  dim_t stride(dim_t each) const { return sequences > 1 ? each : 0; }
};

namespace {

DeviceProblem::DocumentsAt add_documents(const BoundMask& mask, Parcel& parcel) {
  const DocumentNumbers d = number_documents(mask);
  const auto add = [&](const auto& numbers) { return parcel.add(numbers.data(), numbers.size()); };
  const auto add_side = [&](const DocumentNumbers::Side& side) {
    return DeviceProblem::DocumentsAt::Side{add(side.runs), add(side.runs_at), add(side.reaches), 0,
                                            0};
  };
  return {.q = add_side(d.q),
          .kv = add_side(d.kv),
          .documents_at = add(d.documents_at),
          .keys = add(d.keys),
          .queries = add(d.queries),
          .first_tile = add(d.first_tile),
          .q_one = add(d.q_one),
          .kv_one = add(d.kv_one),
          .sequences = d.sequences,
          .blocks = d.blocks,
          .tiles = d.tiles,
          .kv_blocks = d.kv_blocks,
          .together = d.together};
}

// Room for the numbers and spans of every token from `used` on; returns where it ends.
std::size_t place_tokens(const MaskExtent& extent, std::size_t used,
                         DeviceProblem::DocumentsAt& documents) {
  const auto place = [&](std::size_t& at, dim_t tokens, std::size_t each) {
    at = used;
    used += DeviceProblem::taken(static_cast<std::size_t>(documents.sequences * tokens) * each);
  };
  place(documents.q.numbers, extent.q_tokens, sizeof(std::int32_t));
  place(documents.kv.numbers, extent.kv_tokens, sizeof(std::int32_t));
  if (documents.together) {
    place(documents.q.spans, extent.q_tokens, sizeof(kernels::cuda::IndexSpan));
    place(documents.kv.spans, extent.kv_tokens, sizeof(kernels::cuda::IndexSpan));
  }
  return used;
}

kernels::cuda::Dropout dropout_of(const AttendProblem& problem) {
  const AttendOptions& options = problem.options;
  if (options.dropout == 0.0) return {};
  const Place& place = problem.mask.place();
  return {.seed = options.seed,
          .seed_at = options.device_seed,
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
    : device_(problem.q.device().index), line_(block_.graphs(), current_stream()) {
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

std::byte* DeviceProblem::memory_for(std::size_t bytes) {
  if (block_.is_there() && bytes <= StreamBlock::kWorkBytes) return block_.work();
  return scratch_.emplace(bytes).data();
}

bool DeviceProblem::are_numbers_kept() const {
  return block_.is_there() && numbers_.size() <= StreamBlock::kNumberBytes;
}

// Where the host's numbers are for kernels to read.
const std::byte* DeviceProblem::sent() {
  if (are_numbers_kept()) return block_.numbers(numbers_);
  cuda::check(kernels::cuda::upload(memory_, numbers_.data(), numbers_.size(), current_stream()),
              "attend");
  return memory_;
}

// Counters, rules, slopes and ids of documents.
void DeviceProblem::send(const AttendProblem& problem, std::size_t scratch_bytes) {
  const BoundMask& mask = problem.mask;
  numbers_.reserve(StreamBlock::kNumberBytes / 8);
  Parcel parcel(numbers_);
  const unsigned zeros[kernels::cuda::kCounters] = {};  // for calls that have no block
  parcel.add(zeros, kernels::cuda::kCounters);
  const std::size_t rules_at = add_rules(mask, parcel);
  const bool slopes = has_slopes(mask);
  const std::size_t slopes_at = slopes ? add_slopes(mask, parcel) : 0;
  DocumentsAt documents{};
  if (mask.has_documents()) documents = add_documents(mask, parcel);
  if (!are_numbers_kept()) used_ = taken(numbers_.size());
  const auto place = [&](std::size_t bytes) {
    const std::size_t at = used_;
    used_ += taken(bytes);
    return at;
  };
  if (mask.has_documents()) used_ = place_tokens(mask.extent(), used_, documents);
  std::optional<DeviceDocuments> on_device;
  if (has_device_documents(mask)) on_device.emplace(mask);
  const std::size_t on_device_at = place(on_device ? on_device->bytes() : 0);
  const bool changes = has_device_lengths(mask);
  const auto rules = changes ? static_cast<std::size_t>(rule_count(mask)) : mask.sequences().size();
  const std::size_t changed_at = place(changes ? rules * sizeof(PositionRule) : 0);
  const auto heads = static_cast<std::size_t>(mask.extent().num_heads);
  const std::size_t added_at = place(has_device_slopes(mask) ? heads * sizeof(double) : 0);

  memory_ = memory_for(used_ + scratch_bytes);
  const std::byte* numbers = sent();
  MaskArgs& to = args_.mask;
  to.rules = reinterpret_cast<const PositionRule*>(numbers + rules_at);
  to.rule_stride = rules > 1 ? 1 : 0;
  if (changes) {
    auto* changed = reinterpret_cast<PositionRule*>(memory_ + changed_at);
    change_rules(mask, to.rules, changed);
    to.rules = changed;
  }
  if (slopes) to.slopes = reinterpret_cast<const double*>(numbers + slopes_at);
  if (has_device_slopes(mask)) {
    auto* added = reinterpret_cast<double*>(memory_ + added_at);
    add_device_slopes(mask, to.slopes, added);
    to.slopes = added;
  }
  for (const BoundMask::Part& part : mask.parts()) to.parts[to.part_count++] = part_of(part);
  to.kv_begin = mask.place().kv_tokens.begin;
  if (mask.has_documents()) write_documents(mask.extent(), documents, numbers);
  if (on_device) on_device->write(memory_ + on_device_at, to, spans_);
}

// What was sent of documents, as kernels see it, and the numbers of their tokens.
void DeviceProblem::write_documents(const MaskExtent& extent, const DocumentsAt& at,
                                    const std::byte* sent) {
  const auto ints = [&](std::size_t where) {
    return reinterpret_cast<const std::int32_t*>(sent + where);
  };
  const auto spans = [&](std::size_t where) {
    return reinterpret_cast<const IndexSpan*>(sent + where);
  };
  const auto own_ints = [&](std::size_t where) {
    return reinterpret_cast<std::int32_t*>(memory_ + where);
  };
  const auto own_spans = [&](std::size_t where) {
    return at.together ? reinterpret_cast<IndexSpan*>(memory_ + where) : nullptr;
  };
  const auto side = [&](const DocumentsAt::Side& here, const DocumentsAt::Side& other,
                        dim_t tokens) {
    return kernels::cuda::DocumentSide{
        reinterpret_cast<const kernels::cuda::TokenRun*>(sent + here.runs),
        ints(here.runs_at),
        spans(other.reaches),
        own_ints(here.numbers),
        own_spans(here.spans),
        static_cast<std::int32_t>(tokens)};
  };
  MaskArgs& to = args_.mask;
  to.q_documents = own_ints(at.q.numbers);
  to.kv_documents = own_ints(at.kv.numbers);
  to.q_documents_stride = at.stride(extent.q_tokens);
  to.kv_documents_stride = at.stride(extent.kv_tokens);
  spans_ = {.keys = spans(at.keys),
            .queries = spans(at.queries),
            .first_tile = ints(at.first_tile),
            .q_one = ints(at.q_one),
            .kv_one = ints(at.kv_one),
            .of_query = own_spans(at.q.spans),
            .of_key = own_spans(at.kv.spans),
            .blocks_stride = at.stride(at.blocks),
            .tiles_stride = at.stride(at.tiles),
            .kv_blocks_stride = at.stride(at.kv_blocks)};
  cuda::check(kernels::cuda::write_documents(
                  {{side(at.q, at.kv, extent.q_tokens), side(at.kv, at.q, extent.kv_tokens)},
                   ints(at.documents_at),
                   static_cast<std::int32_t>(at.sequences)},
                  current_stream()),
              "attend");
}

void DeviceProblem::set_results(const MutableTensorView& context, const MutableTensorView& lse) {
  args_.context = rows_of(context);
  if (lse.numel() > 0) args_.lse = rows_of(lse);
}

kernels::cuda::PairRules DeviceProblem::pair_rules() const {
  kernels::cuda::PairRules rules{};
  rules.mask = args_.mask;
  rules.documents = spans_;
  rules.dropout = args_.dropout;
  rules.by_position_alone = args_.mask.part_count == 0 && args_.mask.slopes == nullptr &&
                            args_.mask.q_documents == nullptr && args_.softcap == 0.0 &&
                            args_.dropout.threshold == 0;
  if (args_.softcap != 0.0) {
    rules.softcap = static_cast<float>(args_.softcap);
    rules.scale_in_caps = static_cast<float>(args_.scale / args_.softcap);
    rules.softcap2 = static_cast<float>(args_.softcap * 1.4426950408889634);
  }
  if (args_.dropout.threshold != 0) rules.shrunk = static_cast<float>(1.0 / args_.dropout.grown);
  auto low = static_cast<std::uint32_t>(args_.dropout.seed);
  auto high = static_cast<std::uint32_t>(args_.dropout.seed >> 32);
  for (auto& keys : rules.round_keys) {
    keys[0] = low;
    keys[1] = high;
    low += 0x9E3779B9U;
    high += 0xBB67AE85U;
  }
  return rules;
}

unsigned* DeviceProblem::counters() {
  if (counters_.now == nullptr) {
    counters_ = block_.is_there()
                    ? block_.counters()
                    : StreamBlock::Counters{reinterpret_cast<unsigned*>(memory_), nullptr};
  }
  return counters_.now;
}

void DeviceProblem::launch(const char* doing) {
  cuda::check(line_.launch(), doing);
  if (counters_.next != nullptr) block_.cleared_next();
}

void* DeviceProblem::take(std::size_t bytes) {
  void* at = memory_ + used_;
  used_ += taken(bytes);
  return at;
}

}  // namespace cephalo
