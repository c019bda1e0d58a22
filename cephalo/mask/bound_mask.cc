#include "cephalo/mask/bound_mask.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "cephalo/core/fail.h"
#include "cephalo/core/views.h"
#include "cephalo/core/visit.h"

namespace cephalo {
namespace {

// Stands for `unlimited` in sums that must not wrap.
constexpr dim_t kFar = dim_t{1} << 61;

// Checks that a part speaks of all sequences at once or of each.
void require_per_batch(const std::vector<dim_t>& given, dim_t batch, const char* function,
                       const char* part) {
  const auto count = static_cast<dim_t>(given.size());
  require(count == batch || count == 1, "{}: {} has {} entries, batch is {}", function, part, count,
          batch);
}

dim_t at(const std::vector<dim_t>& values, dim_t b) {
  return values[values.size() == 1 ? 0 : static_cast<std::size_t>(b)];
}

bool nonzero_at(const TensorView& t, dim_t offset) {
  return visit_dtype(t.dtype(), [&](auto zero) {
    return load(static_cast<const decltype(zero)*>(t.data())[offset]) != 0.0;
  });
}

double value_at(const TensorView& t, dim_t offset) {
  return visit_dtype(t.dtype(), [&](auto zero) {
    return load(static_cast<const decltype(zero)*>(t.data())[offset]);
  });
}

bool hides(double bias) {
  return bias == -std::numeric_limits<double>::infinity();
}

Tile both(Tile a, Tile b) {
  if (a == Tile::hidden || b == Tile::hidden) return Tile::hidden;
  return a == Tile::visible && b == Tile::visible ? Tile::visible : Tile::mixed;
}

struct IdRange {
  std::int64_t low;
  std::int64_t high;
};

IdRange id_range(const std::int64_t* ids, dim_t begin, dim_t end) {
  const auto [low, high] = std::minmax_element(ids + begin, ids + end);
  return {*low, *high};
}

const std::int64_t* ids_of(const Tensor& ids, dim_t b) {
  return ids.data_as<std::int64_t>() + (ids.dim(0) == 1 ? 0 : b) * ids.dim(1);
}

}  // namespace

BoundMask::BoundMask(const Mask& mask, const MaskExtent& extent, const char* function)
    : mask_(mask), extent_(extent) {
  bind_lengths(function);
  bind_tensors(function);
  if (mask.documents) {
    const Mask::Documents& documents = *mask.documents;
    require(!documents.same_tokens || extent.q_tokens == extent.kv_tokens,
            "{}: documents(ids) needs q_tokens ({}) equal to kv_tokens ({}); say documents(q_ids, "
            "kv_ids)",
            function, extent.q_tokens, extent.kv_tokens);
    for (const auto& [ids, tokens, which] :
         {std::tuple{&documents.q_ids, extent.q_tokens, "q_tokens"},
          std::tuple{&documents.kv_ids, extent.kv_tokens, "kv_tokens"}}) {
      require((ids->dim(0) == 1 || ids->dim(0) == extent.batch) && ids->dim(1) == tokens,
              "{}: documents ids {} must be [{} (batch), {} ({})]", function, ids->shape(),
              extent.batch, tokens, which);
    }
  }
  for (const std::vector<float>& slopes : mask.alibi) {
    require(static_cast<dim_t>(slopes.size()) == extent.num_heads,
            "{}: alibi has {} slopes, num_heads is {}", function, slopes.size(), extent.num_heads);
  }
  adds_ = mask.has_bias();
  hides_nothing_ = mask.empty();
}

void BoundMask::bind_lengths(const char* function) {
  kv_len_ = {extent_.kv_tokens};
  q_len_ = {extent_.q_tokens};
  prefix_ = {0};
  if (mask_.lengths) {
    kv_len_ = mask_.lengths->kv;
    require_per_batch(kv_len_, extent_.batch, function, "lengths(kv)");
    if (mask_.lengths->q) {
      q_len_ = *mask_.lengths->q;
      require_per_batch(q_len_, extent_.batch, function, "lengths(q)");
    }
  }
  if (mask_.causal_prefix) {
    prefix_ = *mask_.causal_prefix;
    require_per_batch(prefix_, extent_.batch, function, "causal(prefix)");
  }
  if (extent_.batch == 0) return;  // nobody will ask
  const auto [align, offset] = mask_.positions.value_or(Mask::Positions{});
  const auto sequences = static_cast<dim_t>(std::max(kv_len_.size(), q_len_.size()));
  for (dim_t b = 0; b < sequences; ++b) {
    const dim_t kv = at(kv_len_, b);
    const dim_t q = at(q_len_, b);
    require(0 <= kv && kv <= extent_.kv_tokens,
            "{}: lengths kv[{}] ({}) must be in [0, {}] (kv_tokens)", function, b, kv,
            extent_.kv_tokens);
    require(0 <= q && q <= extent_.q_tokens, "{}: lengths q[{}] ({}) must be in [0, {}] (q_tokens)",
            function, b, q, extent_.q_tokens);
    shift_.push_back(offset + (align == Align::bottom_right ? kv - q : 0));
  }
}

void BoundMask::bind_tensors(const char* function) {
  const Shape full{extent_.batch, extent_.num_heads, extent_.q_tokens, extent_.kv_tokens};
  for (const MaskTensor& tensor : mask_.tensors) {
    const TensorView& t = tensor.view;
    bool fits = true;
    for (int axis = -1; axis >= -t.rank(); --axis) {
      fits = fits && (t.dim(axis) == full[axis] || t.dim(axis) == 1);
    }
    require(fits,
            "{}: {}({}) does not broadcast to [batch, heads, q, k] = {}; a mask of three "
            "dimensions is [heads, q, k]",
            function, name(tensor.role), t.shape(), full);
    const TensorView whole = broadcast_to(t, full);
    parts_.push_back(
        {tensor.role,
         t,
         {whole.strides()[0], whole.strides()[1], whole.strides()[2], whole.strides()[3]}});
  }
}

dim_t BoundMask::position(dim_t b, dim_t i) const {
  return i + at(shift_, b);
}

bool BoundMask::visible_by_position(dim_t b, dim_t i, dim_t j) const {
  if (j >= at(kv_len_, b) || i >= at(q_len_, b)) return false;
  const dim_t p = position(b, i);
  if (mask_.causal_prefix && j > p && j >= at(prefix_, b)) return false;
  if (mask_.window) {
    if (j < p - std::min(mask_.window->left, kFar)) return false;
    if (j > p + std::min(mask_.window->right, kFar)) return false;
  }
  return true;
}

bool BoundMask::same_document(dim_t b, dim_t i, dim_t j) const {
  const std::int64_t q_id = ids_of(mask_.documents->q_ids, b)[i];
  return q_id >= 0 && q_id == ids_of(mask_.documents->kv_ids, b)[j];
}

bool BoundMask::visible(dim_t b, dim_t h, dim_t i, dim_t j) const {
  if (!visible_by_position(b, i, j)) return false;
  if (mask_.documents && !same_document(b, i, j)) return false;
  for (const Part& part : parts_) {
    const dim_t offset = part.offset(b, h, i, j);
    switch (part.role) {
      case MaskTensor::Role::keep:
        if (!nonzero_at(part.view, offset)) return false;
        break;
      case MaskTensor::Role::drop:
        if (nonzero_at(part.view, offset)) return false;
        break;
      case MaskTensor::Role::bias:
        if (hides(value_at(part.view, offset))) return false;
        break;
    }
  }
  return true;
}

double BoundMask::added(dim_t b, dim_t h, dim_t i, dim_t j) const {
  double sum = 0.0;
  for (const Part& part : parts_) {
    if (part.role == MaskTensor::Role::bias) sum += value_at(part.view, part.offset(b, h, i, j));
  }
  for (const std::vector<float>& slopes : mask_.alibi) {
    const auto distance = static_cast<double>(std::abs(position(b, i) - j));
    sum -= static_cast<double>(slopes[static_cast<std::size_t>(h)]) * distance;
  }
  return sum;
}

void BoundMask::row(dim_t b, dim_t h, dim_t i, std::uint8_t* keep) const {
  const KeyRange range = key_range(b, i);
  std::fill(keep, keep + extent_.kv_tokens, std::uint8_t{0});
  for (dim_t j = range.begin; j < range.end; ++j) keep[j] = visible(b, h, i, j) ? 1 : 0;
}

BoundMask::KeyRange BoundMask::key_range(dim_t b, dim_t i) const {
  return key_range(b, i, i + 1);
}

BoundMask::KeyRange BoundMask::key_range(dim_t b, dim_t i_begin, dim_t i_end) const {
  // Both ends of a range move one way only as i grows, up to the last valid query.
  const dim_t i_last = std::min(i_end, at(q_len_, b)) - 1;
  if (i_begin > i_last) return {0, 0};
  const dim_t p_first = position(b, i_begin);
  const dim_t p_last = position(b, i_last);
  dim_t begin = 0;
  dim_t end = at(kv_len_, b);
  if (mask_.causal_prefix) end = std::min(end, std::max(p_last + 1, at(prefix_, b)));
  if (mask_.window) {
    begin = std::max(begin, p_first - std::min(mask_.window->left, kFar));
    end = std::min(end, p_last + std::min(mask_.window->right, kFar) + 1);
  }
  return begin < end ? KeyRange{begin, end} : KeyRange{0, 0};
}

void BoundMask::position_bits(dim_t b, dim_t i_begin, dim_t i_end, dim_t j_begin, dim_t j_end,
                              std::uint64_t* words) const {
  const dim_t shift = at(shift_, b);
  const dim_t prefix = mask_.causal_prefix ? at(prefix_, b) : kFar;
  const dim_t left = mask_.window ? std::min(mask_.window->left, kFar) : kFar;
  const dim_t right = mask_.window ? std::min(mask_.window->right, kFar) : kFar;
  const dim_t kv_len = at(kv_len_, b);
  const dim_t count = std::min(i_end, at(q_len_, b)) - i_begin;
  for (dim_t j = j_begin; j < j_end; ++j) {
    // Key j is seen from the positions between j − right (or j itself) and j + left.
    const dim_t lowest = j >= prefix ? std::max(j - right, j) : j - right;
    const dim_t first = std::clamp<dim_t>(lowest - shift - i_begin, 0, 64);
    const dim_t last = std::min(j + left - shift - i_begin + 1, j < kv_len ? count : 0);
    const std::uint64_t below =
        last >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << std::max<dim_t>(last, 0)) - 1;
    words[j - j_begin] = first >= last ? 0 : below & ~((std::uint64_t{1} << first) - 1);
  }
}

std::uint64_t BoundMask::key_bits(dim_t b, dim_t i, dim_t j_begin, dim_t j_end) const {
  if (i >= at(q_len_, b)) return 0;
  const dim_t p = i + at(shift_, b);
  const dim_t left = mask_.window ? std::min(mask_.window->left, kFar) : kFar;
  const dim_t right = mask_.window ? std::min(mask_.window->right, kFar) : kFar;
  const dim_t first = std::clamp<dim_t>(p - left - j_begin, 0, 64);
  const auto up_to = [&](dim_t end) {  // keys from `first` on and below `end`
    const dim_t last = std::clamp<dim_t>(end - j_begin, 0, 64);
    const std::uint64_t below = last == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << last) - 1;
    return first >= last ? 0 : below & ~((std::uint64_t{1} << first) - 1);
  };
  const dim_t end = std::min({j_end, at(kv_len_, b), p + right + 1});
  if (!mask_.causal_prefix) return up_to(end);
  return up_to(std::min(end, p + 1)) | up_to(std::min(end, at(prefix_, b)));
}

double BoundMask::slope(dim_t h) const {
  double sum = 0.0;
  for (const std::vector<float>& slopes : mask_.alibi) {
    sum += static_cast<double>(slopes[static_cast<std::size_t>(h)]);
  }
  return sum;
}

const std::int64_t* BoundMask::q_documents(dim_t b) const {
  return ids_of(mask_.documents->q_ids, b);
}

const std::int64_t* BoundMask::kv_documents(dim_t b) const {
  return ids_of(mask_.documents->kv_ids, b);
}

Tile BoundMask::tile_by_position(dim_t b, dim_t i_begin, dim_t i_end, dim_t j_begin,
                                 dim_t j_end) const {
  const dim_t i_valid = std::min(i_end, at(q_len_, b));
  const dim_t j_valid = std::min(j_end, at(kv_len_, b));
  if (i_begin >= i_valid || j_begin >= j_valid) return Tile::hidden;
  bool all = i_valid == i_end && j_valid == j_end;
  const dim_t p_first = position(b, i_begin);
  const dim_t p_last = position(b, i_valid - 1);
  const dim_t j_last = j_valid - 1;
  if (mask_.causal_prefix) {
    if (j_begin > std::max(p_last, at(prefix_, b) - 1)) return Tile::hidden;
    all = all && j_last <= std::max(p_first, at(prefix_, b) - 1);
  }
  if (mask_.window) {
    const dim_t left = std::min(mask_.window->left, kFar);
    const dim_t right = std::min(mask_.window->right, kFar);
    if (j_last < p_first - left || j_begin > p_last + right) return Tile::hidden;
    all = all && j_begin >= p_last - left && j_last <= p_first + right;
  }
  return all ? Tile::visible : Tile::mixed;
}

Tile BoundMask::tile_by_document(dim_t b, dim_t i_begin, dim_t i_end, dim_t j_begin,
                                 dim_t j_end) const {
  const IdRange q = id_range(ids_of(mask_.documents->q_ids, b), i_begin, i_end);
  const IdRange kv = id_range(ids_of(mask_.documents->kv_ids, b), j_begin, j_end);
  if (q.high < 0 || kv.high < 0 || q.high < kv.low || kv.high < q.low) return Tile::hidden;
  const bool one_document = q.low == q.high && kv.low == kv.high && q.low == kv.low;
  return one_document ? Tile::visible : Tile::mixed;
}

Tile BoundMask::tile(dim_t b, dim_t h, dim_t i_begin, dim_t i_end, dim_t j_begin,
                     dim_t j_end) const {
  if (i_begin >= i_end || j_begin >= j_end) return Tile::hidden;
  Tile answer = tile_by_position(b, i_begin, i_end, j_begin, j_end);
  if (answer != Tile::hidden && mask_.documents) {
    answer = both(answer, tile_by_document(b, i_begin, i_end, j_begin, j_end));
  }
  for (const Part& part : parts_) {
    if (answer == Tile::hidden) break;
    bool some = false;
    bool all = part.role != MaskTensor::Role::bias;
    for (dim_t i = i_begin; i < i_end; ++i) {
      for (dim_t j = j_begin; j < j_end && (all || !some); ++j) {
        const dim_t offset = part.offset(b, h, i, j);
        const bool seen =
            part.role == MaskTensor::Role::bias
                ? !hides(value_at(part.view, offset))
                : nonzero_at(part.view, offset) == (part.role == MaskTensor::Role::keep);
        some = some || seen;
        all = all && seen;
      }
    }
    answer = both(answer, all ? Tile::visible : (some ? Tile::mixed : Tile::hidden));
  }
  if (answer == Tile::visible && !mask_.alibi.empty()) answer = Tile::mixed;
  return answer;
}

}  // namespace cephalo
