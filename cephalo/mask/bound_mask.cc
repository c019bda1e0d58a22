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
// Dropout counts in 32 bits.
constexpr dim_t kLongestWhole = (dim_t{1} << 32) - 1;

// -> how long the whole is along one axis
dim_t whole_of(const Place::Axis& axis, dim_t own, const char* function, const char* which) {
  if (axis.whole == 0) {
    require(axis.begin == 0, "{}: place.{} begins at {}; give the length of the whole", function,
            which, axis.begin);
    return own;
  }
  require(axis.whole <= kLongestWhole, "{}: place.{}: a whole of {} is longer than {}", function,
          which, axis.whole, kLongestWhole);
  require(0 <= axis.begin && axis.begin <= axis.whole && own <= axis.whole - axis.begin,
          "{}: place.{}: {} from {} on are not inside a whole of {}", function, which, own,
          axis.begin, axis.whole);
  return axis.whole;
}

void require_on(Device device, const Mask& mask, const char* function) {
  for (const DevicePart& part : mask.device_parts) {
    require(part.view.device() == device, "{}: {} of the mask lies on {}, the problem on {}",
            function, name(part.role), part.view.device(), device);
  }
  for (const MaskTensor& t : mask.tensors) {
    require(t.view.device() == device, "{}: {} of the mask lies on {}, the problem on {}", function,
            name(t.role), t.view.device(), device);
  }
}

// Checks that a part speaks of all sequences at once or of each.
void require_per_batch(dim_t count, dim_t batch, const char* function, const char* part) {
  require(count == batch || count == 1, "{}: {} has {} entries, batch is {}", function, part, count,
          batch);
}
void require_per_batch(const std::vector<dim_t>& given, dim_t batch, const char* function,
                       const char* part) {
  require_per_batch(static_cast<dim_t>(given.size()), batch, function, part);
}

// ids: [tokens] or [batch | 1, tokens]
void require_ids(const TensorView& ids, dim_t batch, dim_t tokens, const char* function,
                 const char* which) {
  const bool fits = ids.rank() == 1 || ids.dim(0) == 1 || ids.dim(0) == batch;
  require(fits && ids.dim(-1) == tokens, "{}: documents ids {} must be [{} (batch), {} ({})]",
          function, ids.shape(), batch, tokens, which);
}

// `values` has one entry for all sequences, or one for each.
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

// Bits [begin, end), of which those outside of [0, 64) fall away.
std::uint64_t bits_between(dim_t begin, dim_t end) {
  const auto below = [](dim_t bit) {
    const dim_t inside = std::clamp<dim_t>(bit, 0, 64);
    return inside == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << inside) - 1;
  };
  return begin < end ? below(end) & ~below(begin) : 0;
}

struct IdRange {
  std::int64_t low;
  std::int64_t high;
};

IdRange id_range(const std::int64_t* ids, dim_t begin, dim_t end) {
  const auto [low, high] = std::minmax_element(ids + begin, ids + end);
  return {*low, *high};
}

// ids: [batch | 1, tokens]
const std::int64_t* ids_of(const Tensor& ids, dim_t b, dim_t token) {
  return ids.data_as<std::int64_t>() + (ids.dim(0) == 1 ? 0 : b) * ids.dim(1) + token;
}

}  // namespace

MaskExtent whole_of(const Place& place, const MaskExtent& own, const char* function) {
  return {whole_of(place.batch, own.batch, function, "batch"),
          whole_of(place.heads, own.num_heads, function, "heads"),
          whole_of(place.q_tokens, own.q_tokens, function, "q_tokens"),
          whole_of(place.kv_tokens, own.kv_tokens, function, "kv_tokens")};
}

BoundMask::BoundMask(const Mask& mask, const MaskExtent& extent, const char* function,
                     const Place& place, Device device)
    : mask_(mask), extent_(extent), place_(place), whole_(whole_of(place, extent, function)) {
  require_on(device, mask, function);
  bind_positions(function);
  bind_tensors(function);
  bind_documents(function);
  bind_device_parts(function);
  for (const std::vector<float>& slopes : mask.alibi) {
    require(static_cast<dim_t>(slopes.size()) == whole_.num_heads,
            "{}: alibi has {} slopes, num_heads is {}", function, slopes.size(), whole_.num_heads);
  }
  adds_ = mask.has_bias();
  hides_nothing_ = mask.empty();
}

void BoundMask::bind_positions(const char* function) {
  const std::vector<dim_t> kv_tokens{whole_.kv_tokens};
  const std::vector<dim_t> q_tokens{whole_.q_tokens};
  const std::vector<dim_t> no_prefix{kFar};  // without causal every key is like one of a prefix
  const std::vector<dim_t>& kv_len = mask_.lengths ? mask_.lengths->kv : kv_tokens;
  const std::vector<dim_t>& q_len =
      mask_.lengths && mask_.lengths->q ? *mask_.lengths->q : q_tokens;
  const std::vector<dim_t>& prefix = mask_.causal_prefix ? *mask_.causal_prefix : no_prefix;
  require_per_batch(kv_len, whole_.batch, function, "lengths(kv)");
  require_per_batch(q_len, whole_.batch, function, "lengths(q)");
  require_per_batch(prefix, whole_.batch, function, "causal(prefix)");
  if (extent_.batch == 0) return;  // nobody will ask
  const auto [align, offset] = mask_.positions.value_or(Mask::Positions{});
  const auto [left, right] = mask_.window.value_or(Mask::Window{});
  const std::size_t count = std::max({kv_len.size(), q_len.size(), prefix.size()});
  const dim_t q_begin = place_.q_tokens.begin;
  const dim_t kv_begin = place_.kv_tokens.begin;
  sequences_.reserve(count == 1 ? 1 : static_cast<std::size_t>(extent_.batch));
  for (dim_t b = 0; b < static_cast<dim_t>(count); ++b) {
    const dim_t kv = at(kv_len, b);
    const dim_t q = at(q_len, b);
    require(0 <= kv && kv <= whole_.kv_tokens,
            "{}: lengths kv[{}] ({}) must be in [0, {}] (kv_tokens)", function, b, kv,
            whole_.kv_tokens);
    require(0 <= q && q <= whole_.q_tokens, "{}: lengths q[{}] ({}) must be in [0, {}] (q_tokens)",
            function, b, q, whole_.q_tokens);
    const dim_t own = b - place_.batch.begin;
    if (count > 1 && (own < 0 || own >= extent_.batch)) continue;
    const dim_t shift = offset + (align == Align::bottom_right ? kv - q : 0);
    sequences_.push_back({.q_len = std::clamp<dim_t>(q - q_begin, 0, extent_.q_tokens),
                          .kv_len = std::clamp<dim_t>(kv - kv_begin, 0, extent_.kv_tokens),
                          .shift = shift + q_begin - kv_begin,
                          .prefix = std::min(at(prefix, b), kFar) - kv_begin,
                          .left = std::min(left, kFar),
                          .right = std::min(right, kFar)});
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

void BoundMask::bind_documents(const char* function) const {
  if (!mask_.documents) return;
  const Mask::Documents& documents = *mask_.documents;
  require(!documents.same_tokens || whole_.q_tokens == whole_.kv_tokens,
          "{}: documents(ids) needs q_tokens ({}) equal to kv_tokens ({}); use documents(q_ids, "
          "kv_ids)",
          function, whole_.q_tokens, whole_.kv_tokens);
  for (const auto& [ids, tokens, which] :
       {std::tuple{&documents.q_ids, whole_.q_tokens, "q_tokens"},
        std::tuple{&documents.kv_ids, whole_.kv_tokens, "kv_tokens"}}) {
    require_ids(*ids, whole_.batch, tokens, function, which);
  }
}

// Packed alike, by one tensor: positions would be shifted by what one side has more.
void BoundMask::bind_ends(const DevicePart& part, const char* function) const {
  const bool alike = std::all_of(mask_.device_parts.begin(), mask_.device_parts.end(),
                                 [&](const DevicePart& other) {
                                   return !other.is_ends || other.view.data() == part.view.data();
                                 });
  require(
      !alike || whole_.q_tokens == whole_.kv_tokens,
      "{}: queries and keys are packed by the same ends, but q_tokens is {} and kv_tokens is {}",
      function, whole_.q_tokens, whole_.kv_tokens);
}

// Shapes alone: the numbers are elsewhere.
void BoundMask::bind_device_parts(const char* function) const {
  using Role = DevicePart::Role;
  for (const DevicePart& part : mask_.device_parts) {
    const TensorView& t = part.view;
    if (part.is_ends) {  // of any number of sequences
      bind_ends(part, function);
      continue;
    }
    switch (part.role) {
      case Role::q_documents:
        require_ids(t, whole_.batch, whole_.q_tokens, function, "q_tokens");
        break;
      case Role::kv_documents:
        require_ids(t, whole_.batch, whole_.kv_tokens, function, "kv_tokens");
        break;
      case Role::slopes:
        require(t.numel() == whole_.num_heads, "{}: alibi has {} slopes, num_heads is {}", function,
                t.numel(), whole_.num_heads);
        break;
      case Role::prefix:
      case Role::kv_lengths:
      case Role::q_lengths:
        require_per_batch(t.numel(), whole_.batch, function, name(part.role));
        break;
    }
  }
}

bool BoundMask::is_from_the_end() const {
  return mask_.positions.value_or(Mask::Positions{}).align == Align::bottom_right;
}

// The one rule of lengths, causal and window: j < kv_len, and j <= p or j < prefix, and
// p − left <= j <= p + right.
BoundMask::KeyRange BoundMask::Sequence::span(dim_t i) const {
  const dim_t p = i + shift;
  const dim_t far_end = std::min(std::max(p + 1, prefix), p + right + 1);
  return {std::max<dim_t>(0, p - left), std::min(kv_len, far_end)};
}

BoundMask::KeyRange BoundMask::span(dim_t b, dim_t i) const {
  return key_range(b, i, i + 1);
}

BoundMask::KeyRange BoundMask::key_range(dim_t b, dim_t i_begin, dim_t i_end) const {
  const Sequence& s = sequence(b);
  const dim_t i_last = std::min(i_end, s.q_len) - 1;
  if (i_begin > i_last) return {0, 0};
  const KeyRange range{s.span(i_begin).begin, s.span(i_last).end};
  return range.begin < range.end ? range : KeyRange{0, 0};
}

bool BoundMask::same_document(dim_t b, dim_t i, dim_t j) const {
  const std::int64_t q_id = q_documents(b)[i];
  return q_id >= 0 && q_id == kv_documents(b)[j];
}

bool BoundMask::visible(dim_t b, dim_t h, dim_t i, dim_t j) const {
  const auto [begin, end] = span(b, i);
  return begin <= j && j < end && visible_by_content(b, h, i, j);
}

// What documents and tensors say.
bool BoundMask::visible_by_content(dim_t b, dim_t h, dim_t i, dim_t j) const {
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
    const auto distance = static_cast<double>(std::abs(position(b, i) - key_position(j)));
    sum -= static_cast<double>(slopes[whole_head(h)]) * distance;
  }
  return sum;
}

void BoundMask::row(dim_t b, dim_t h, dim_t i, std::uint8_t* keep) const {
  const auto [begin, end] = span(b, i);
  std::fill(keep, keep + extent_.kv_tokens, std::uint8_t{0});
  for (dim_t j = begin; j < end; ++j) keep[j] = visible_by_content(b, h, i, j) ? 1 : 0;
}

void BoundMask::position_bits(dim_t b, dim_t i_begin, dim_t i_end, dim_t j_begin, dim_t j_end,
                              std::uint64_t* words) const {
  const Sequence& s = sequence(b);
  const dim_t queries = std::min(i_end, s.q_len) - i_begin;
  const dim_t keys = j_end - j_begin;
  std::fill(words, words + keys, std::uint64_t{0});
  // A query's bit turns on at the first key of its span and off behind the last one.
  for (dim_t x = 0; x < queries; ++x) {
    const auto [begin, end] = s.span(i_begin + x);
    const dim_t on = std::max<dim_t>(0, begin - j_begin);
    const dim_t off = std::min(keys, end - j_begin);
    if (on >= off) continue;
    words[on] ^= std::uint64_t{1} << x;
    if (off < keys) words[off] ^= std::uint64_t{1} << x;
  }
  for (dim_t k = 1; k < keys; ++k) words[k] ^= words[k - 1];
}

std::uint64_t BoundMask::key_bits(dim_t b, dim_t i, dim_t j_begin, dim_t j_end) const {
  const auto [begin, end] = span(b, i);
  return bits_between(begin - j_begin, std::min(end, j_end) - j_begin);
}

double BoundMask::slope(dim_t h) const {
  double sum = 0.0;
  for (const std::vector<float>& slopes : mask_.alibi) {
    sum += static_cast<double>(slopes[whole_head(h)]);
  }
  return sum;
}

const std::int64_t* BoundMask::q_documents(dim_t b) const {
  return ids_of(mask_.documents->q_ids, place_.batch.begin + b, place_.q_tokens.begin);
}

const std::int64_t* BoundMask::kv_documents(dim_t b) const {
  return ids_of(mask_.documents->kv_ids, place_.batch.begin + b, place_.kv_tokens.begin);
}

Tile BoundMask::tile_by_position(dim_t b, dim_t i_begin, dim_t i_end, dim_t j_begin,
                                 dim_t j_end) const {
  const Sequence& s = sequence(b);
  const dim_t i_valid = std::min(i_end, s.q_len);
  if (i_begin >= i_valid) return Tile::hidden;
  const KeyRange first = s.span(i_begin);
  const KeyRange last = s.span(i_valid - 1);
  if (std::max(j_begin, first.begin) >= std::min(j_end, last.end)) return Tile::hidden;
  const bool all = i_valid == i_end && last.begin <= j_begin && j_end <= first.end;
  return all ? Tile::visible : Tile::mixed;
}

Tile BoundMask::tile_by_document(dim_t b, dim_t i_begin, dim_t i_end, dim_t j_begin,
                                 dim_t j_end) const {
  const IdRange q = id_range(q_documents(b), i_begin, i_end);
  const IdRange kv = id_range(kv_documents(b), j_begin, j_end);
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
