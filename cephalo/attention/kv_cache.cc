#include "cephalo/attention/kv_cache.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

#include "cephalo/core/common_device.h"
#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

// Keys and values differ in the width of a row alone.
constexpr int kKeys = 0;
constexpr int kValues = 1;

using Lengths = std::vector<dim_t>;  // one number per sequence

dim_t dim_of(const KVCacheShape& shape, int side) {
  return side == kKeys ? shape.head_dim : shape.v_dim;
}

dim_t row_bytes_of(const KVCacheShape& shape, int side, DType dtype) {
  return checked_mul(dim_of(shape, side), static_cast<dim_t>(item_size(dtype)));
}

template <typename F>
void for_each_head(const KVCacheShape& shape, F&& f) {
  for (const int side : {kKeys, kValues}) {
    for (dim_t b = 0; b < shape.batch; ++b) {
      for (dim_t h = 0; h < shape.num_kv_heads; ++h) f(side, b, h);
    }
  }
}

// Memory for `capacity` tokens of every sequence: keys and values, each
// [batch, num_kv_heads, capacity, dim].
class Block {
 public:
  Block(const KVCacheShape& shape, dim_t capacity, DType dtype)
      : num_kv_heads_(shape.num_kv_heads), capacity_(capacity) {
    for (const int side : {kKeys, kValues}) {
      const dim_t dim = dim_of(shape, side);
      tensors_[side] = Tensor::empty({shape.batch, num_kv_heads_, capacity, dim}, dtype);
      data_[side] = static_cast<std::byte*>(tensors_[side].mutable_view().mutable_data());
      row_bytes_[side] = row_bytes_of(shape, side, dtype);
    }
  }

  dim_t capacity() const { return capacity_; }
  const Tensor& tensor(int side) const { return tensors_[side]; }
  std::size_t bytes() const { return tensors_[kKeys].bytes() + tensors_[kValues].bytes(); }

  std::byte* row(int side, dim_t b, dim_t h, dim_t slot) const {
    return data_[side] + ((b * num_kv_heads_ + h) * capacity_ + slot) * row_bytes_[side];
  }
  void copy_rows(int side, dim_t count, const std::byte* from, std::byte* to) const {
    std::memcpy(to, from, static_cast<std::size_t>(count * row_bytes_[side]));
  }

 private:
  dim_t num_kv_heads_;
  dim_t capacity_;
  std::array<Tensor, 2> tensors_;
  std::array<std::byte*, 2> data_{};
  std::array<dim_t, 2> row_bytes_{};
};

}  // namespace

// Sequences, heads and positions were checked by the cache.
class KVStore {
 public:
  struct Run {
    std::byte* rows;  // they lie one after another
    dim_t count;
  };

  KVStore(const KVCacheShape& shape, DType dtype) : shape_(shape), dtype_(dtype) {}
  virtual ~KVStore() = default;

  // Memory for positions [lengths[b], ends[b]) of each sequence; throws before anything changes.
  virtual void make_room(const Lengths& lengths, const Lengths& ends) = 0;
  // The rows from `position` on, as far as they lie together; perhaps past the sequence's end.
  virtual Run run(int side, dim_t b, dim_t h, dim_t position) const = 0;
  virtual dim_t first_kept(dim_t /*b*/) const { return 0; }
  virtual void clear(dim_t b) = 0;
  virtual std::size_t bytes() const = 0;
  virtual const Tensor* dense(int /*side*/) const { return nullptr; }

 protected:
  KVCacheShape shape_;
  DType dtype_;
};

namespace {

class GrowingStore final : public KVStore {
 public:
  GrowingStore(const KVCacheShape& shape, DType dtype)
      : KVStore(shape, dtype), block_(shape, 0, dtype) {}

  void make_room(const Lengths& lengths, const Lengths& ends) override {
    const dim_t longest = ends.empty() ? 0 : *std::max_element(ends.begin(), ends.end());
    if (longest <= block_.capacity()) return;
    Block larger(shape_, std::max(longest, 2 * block_.capacity()), dtype_);
    for_each_head(shape_, [&](int side, dim_t b, dim_t h) {
      larger.copy_rows(side, lengths[b], block_.row(side, b, h, 0), larger.row(side, b, h, 0));
    });
    block_ = std::move(larger);
  }

  Run run(int side, dim_t b, dim_t h, dim_t position) const override {
    return {block_.row(side, b, h, position), block_.capacity() - position};
  }
  void clear(dim_t /*b*/) override {}
  std::size_t bytes() const override { return block_.bytes(); }
  const Tensor* dense(int side) const override { return &block_.tensor(side); }

 private:
  Block block_;
};

// Position p lies in slot p % capacity of the ring or, when the last append brought it, in the
// chunk beside the ring.
class RingStore final : public KVStore {
 public:
  RingStore(const KVCacheShape& shape, dim_t capacity, DType dtype)
      : KVStore(shape, dtype),
        ring_(shape, capacity, dtype),
        chunk_(shape, 0, dtype),
        chunk_begin_(shape.batch) {}

  void make_room(const Lengths& lengths, const Lengths& ends) override {
    dim_t longest = 0;
    for (dim_t b = 0; b < shape_.batch; ++b) longest = std::max(longest, ends[b] - lengths[b]);
    std::optional<Block> other;
    if (!fits_chunk(longest)) other.emplace(shape_, longest, dtype_);
    move_chunk_into_ring(lengths);
    if (other) chunk_ = std::move(*other);
    chunk_begin_ = lengths;
  }

  Run run(int side, dim_t b, dim_t h, dim_t position) const override {
    const dim_t in_chunk = position - chunk_begin_[b];
    if (in_chunk >= 0) return {chunk_.row(side, b, h, in_chunk), chunk_.capacity() - in_chunk};
    const dim_t slot = position % ring_.capacity();
    return {ring_.row(side, b, h, slot), std::min(ring_.capacity() - slot, -in_chunk)};
  }

  dim_t first_kept(dim_t b) const override {
    return std::max<dim_t>(0, chunk_begin_[b] - ring_.capacity());
  }
  void clear(dim_t b) override { chunk_begin_[b] = 0; }
  std::size_t bytes() const override { return ring_.bytes() + chunk_.bytes(); }

 private:
  // A chunk far longer than the ring, such as a prompt, does not hold its memory for ever.
  bool fits_chunk(dim_t tokens) const {
    return tokens <= chunk_.capacity() &&
           chunk_.capacity() <= std::max(2 * tokens, ring_.capacity());
  }

  void move_chunk_into_ring(const Lengths& lengths) {
    for_each_head(shape_, [&](int side, dim_t b, dim_t h) {
      dim_t position = std::max(chunk_begin_[b], lengths[b] - ring_.capacity());
      while (position < lengths[b]) {
        const Run from = run(side, b, h, position);
        const dim_t slot = position % ring_.capacity();
        const dim_t count = std::min(ring_.capacity() - slot, lengths[b] - position);
        ring_.copy_rows(side, count, from.rows, ring_.row(side, b, h, slot));
        position += count;
      }
    });
  }

  Block ring_;
  Block chunk_;
  Lengths chunk_begin_;  // the position of the chunk's first token
};

// Room for `size` elements, growing as push_back does: it will not throw up to there.
template <typename T>
void reserve(std::vector<T>& list, dim_t size) {
  const auto wanted = static_cast<std::size_t>(size);
  if (wanted > list.capacity()) list.reserve(std::max(wanted, 2 * list.capacity()));
}

class PagedStore final : public KVStore {
 public:
  PagedStore(const KVCacheShape& shape, dim_t page, DType dtype)
      : KVStore(shape, dtype),
        page_(page),
        head_bytes_{checked_mul(page, row_bytes_of(shape, kKeys, dtype)),
                    checked_mul(page, row_bytes_of(shape, kValues, dtype))},
        table_(shape.batch) {}

  void make_room(const Lengths& /*lengths*/, const Lengths& ends) override {
    dim_t missing = 0;
    for (dim_t b = 0; b < shape_.batch; ++b) {
      missing = checked_add(missing, pages_for(ends[b]) - std::ssize(table_[b]));
    }
    if (missing == 0) return;
    KVCacheShape fresh = shape_;  // its sequences are pages
    fresh.batch = std::max<dim_t>(0, missing - std::ssize(free_));
    Block block(fresh, page_, dtype_);
    reserve(blocks_, std::ssize(blocks_) + 1);
    reserve(free_, num_pages_ + fresh.batch);  // all of them, so that clear does not throw
    for (dim_t b = 0; b < shape_.batch; ++b) reserve(table_[b], pages_for(ends[b]));

    // Nothing throws from here on.
    for (dim_t page = fresh.batch - 1; page >= 0; --page) {
      free_.push_back({block.row(kKeys, page, 0, 0), block.row(kValues, page, 0, 0)});
    }
    if (fresh.batch > 0) blocks_.push_back(std::move(block));
    num_pages_ += fresh.batch;
    for (dim_t b = 0; b < shape_.batch; ++b) {
      for (dim_t page = std::ssize(table_[b]); page < pages_for(ends[b]); ++page) {
        table_[b].push_back(free_.back());
        free_.pop_back();
      }
    }
  }

  Run run(int side, dim_t b, dim_t h, dim_t position) const override {
    const Page& page = table_[b][position / page_];
    const dim_t slot = position % page_;
    return {page[side] + h * head_bytes_[side] + slot * (head_bytes_[side] / page_), page_ - slot};
  }

  void clear(dim_t b) override {
    free_.insert(free_.end(), table_[b].begin(), table_[b].end());
    table_[b].clear();
  }
  std::size_t bytes() const override {
    return static_cast<std::size_t>(num_pages_ * shape_.num_kv_heads *
                                    (head_bytes_[kKeys] + head_bytes_[kValues]));
  }

 private:
  using Page = std::array<std::byte*, 2>;  // keys, values: each [num_kv_heads, page, dim]

  dim_t pages_for(dim_t tokens) const { return tokens / page_ + (tokens % page_ != 0 ? 1 : 0); }

  dim_t page_;
  std::array<dim_t, 2> head_bytes_;
  std::vector<Block> blocks_;  // own the pages
  dim_t num_pages_ = 0;
  std::vector<Page> free_;
  std::vector<std::vector<Page>> table_;  // the pages of each sequence
};

std::unique_ptr<KVStore> make_store(KVCache::Kind kind, const KVCacheShape& shape, dim_t room,
                                    DType dtype) {
  switch (kind) {
    case KVCache::Kind::growing:
      return std::make_unique<GrowingStore>(shape, dtype);
    case KVCache::Kind::ring:
      return std::make_unique<RingStore>(shape, room, dtype);
    case KVCache::Kind::paged:
      return std::make_unique<PagedStore>(shape, room, dtype);
  }
  fail(Error::Kind::value, "KVCache: unknown kind {}", static_cast<int>(kind));
}

// Lists of a huge batch run out of memory as tensors do, and say so in the same way.
template <typename F>
void with_memory(dim_t batch, F&& work) {
  try {
    // Where size_t has 32 bits, the count itself would be cut.
    if (batch > std::numeric_limits<std::ptrdiff_t>::max()) throw std::length_error("batch");
    work();
  } catch (const std::bad_alloc&) {
    fail(Error::Kind::memory, "KVCache: no memory for the lists of {} sequences", batch);
  } catch (const std::length_error&) {
    fail(Error::Kind::memory, "KVCache: no list is as long as {} sequences", batch);
  }
}

void check_tensor(const char* argument, const TensorView& t, const KVCacheShape& shape, int side) {
  require_type(is_floating(t.dtype()), "KVCache: {} is {}, a floating-point type is needed",
               argument, name(t.dtype()));
  const dim_t dim = dim_of(shape, side);
  const bool fits =
      t.rank() == 4 && t.dim(0) == shape.batch && t.dim(1) == shape.num_kv_heads && t.dim(3) == dim;
  require(fits, "KVCache: {} {} must be [{} (batch), {} (num_kv_heads), new_tokens, {} ({})]",
          argument, t.shape(), shape.batch, shape.num_kv_heads, dim,
          side == kKeys ? "head_dim" : "v_dim");
}

}  // namespace

KVCache::KVCache(Kind kind, const KVCacheShape& shape, dim_t room, DType dtype)
    : kind_(kind), shape_(shape), room_(room), dtype_(dtype) {
  require(shape.batch >= 0, "KVCache: batch ({}) must be >= 0", shape.batch);
  require(shape.num_kv_heads > 0, "KVCache: num_kv_heads ({}) must be > 0", shape.num_kv_heads);
  require(shape.head_dim > 0, "KVCache: head_dim ({}) must be > 0", shape.head_dim);
  require(shape.v_dim >= 0, "KVCache: v_dim ({}) must be >= 0; 0 means head_dim", shape.v_dim);
  require(room > 0, "KVCache: {} ({}) must be > 0", kind == Kind::ring ? "capacity" : "page", room);
  require_type(is_floating(dtype), "KVCache: dtype is {}, a floating-point type is needed",
               name(dtype));
  if (shape_.v_dim == 0) shape_.v_dim = shape_.head_dim;
  with_memory(shape.batch, [&] {
    lengths_.resize(shape.batch);
    appended_.resize(shape.batch);
    store_ = make_store(kind, shape_, room, dtype);
  });
}

KVCache KVCache::growing(const KVCacheShape& shape, DType dtype) {
  return {Kind::growing, shape, 1, dtype};
}

KVCache KVCache::ring(const KVCacheShape& shape, dim_t capacity, DType dtype) {
  return {Kind::ring, shape, capacity, dtype};
}

KVCache KVCache::paged(const KVCacheShape& shape, dim_t page, DType dtype) {
  return {Kind::paged, shape, page, dtype};
}

KVCache::KVCache(KVCache&&) noexcept = default;
KVCache& KVCache::operator=(KVCache&&) noexcept = default;
KVCache::~KVCache() = default;

// The length of each sequence after append(k, v, counts), all of which are checked.
std::vector<dim_t> KVCache::ends_of(const TensorView& k, const TensorView& v,
                                    const std::vector<dim_t>& counts) const {
  check_tensor("k", k, shape_, kKeys);
  check_tensor("v", v, shape_, kValues);
  const dim_t new_tokens = k.dim(2);
  require(v.dim(2) == new_tokens, "KVCache: new_tokens of k ({}) and v ({}) differ: k {}, v {}",
          new_tokens, v.dim(2), k.shape(), v.shape());
  require(counts.empty() || std::ssize(counts) == shape_.batch,
          "KVCache: counts has {} numbers for a batch of {}", counts.size(), shape_.batch);
  std::vector<dim_t> ends = lengths_;
  for (dim_t b = 0; b < shape_.batch; ++b) {
    const dim_t count = counts.empty() ? new_tokens : counts[b];
    require(count >= 0 && count <= new_tokens,
            "KVCache: counts[{}] ({}) must be in [0, {} (new_tokens)]", b, count, new_tokens);
    ends[b] = checked_add(ends[b], count);
  }
  return ends;
}

void KVCache::append(const TensorView& k, const TensorView& v, const std::vector<dim_t>& counts) {
  std::vector<dim_t> ends;
  with_memory(shape_.batch, [&] {
    require_host("KVCache", {{"k", k}, {"v", v}});
    ends = ends_of(k, v, counts);
    store_->make_room(lengths_, ends);
  });
  // Nothing fails from here on.
  for_each_head(shape_, [&](int side, dim_t b, dim_t h) {
    if (ends[b] == lengths_[b]) return;
    const TensorView rows = (side == kKeys ? k : v)[b][h];  // [new_tokens, dim]
    for (dim_t position = lengths_[b]; position < ends[b];) {
      const KVStore::Run run = store_->run(side, b, h, position);
      const dim_t first = position - lengths_[b];
      const dim_t count = std::min(run.count, ends[b] - position);
      MutableTensorView(run.rows, dtype_, {count, rows.dim(1)})
          .copy_from(rows.slice(0, first, first + count));
      position += count;
    }
  });
  for (dim_t b = 0; b < shape_.batch; ++b) appended_[b] = ends[b] - lengths_[b];
  lengths_.swap(ends);
}

dim_t KVCache::tokens() const {
  return lengths_.empty() ? 0 : *std::max_element(lengths_.begin(), lengths_.end());
}

dim_t KVCache::first_kept(dim_t b) const {
  check_sequence(b);
  return store_->first_kept(b);
}

void KVCache::clear(dim_t b) {
  check_sequence(b);
  store_->clear(b);
  lengths_[b] = 0;
  appended_[b] = 0;
}

void KVCache::clear() {
  for (dim_t b = 0; b < shape_.batch; ++b) clear(b);
}

std::size_t KVCache::bytes() const {
  return store_->bytes();
}

void KVCache::key_rows(dim_t b, dim_t kv_head, dim_t begin, dim_t end, const void** rows) const {
  rows_of(kKeys, b, kv_head, begin, end, rows);
}

void KVCache::value_rows(dim_t b, dim_t kv_head, dim_t begin, dim_t end, const void** rows) const {
  rows_of(kValues, b, kv_head, begin, end, rows);
}

void KVCache::rows_of(int side, dim_t b, dim_t kv_head, dim_t begin, dim_t end,
                      const void** rows) const {
  check_sequence(b);
  require(kv_head >= 0 && kv_head < shape_.num_kv_heads,
          "KVCache: kv_head {} is outside num_kv_heads ({})", kv_head, shape_.num_kv_heads);
  require(store_->first_kept(b) <= begin && begin <= end && end <= lengths_[b],
          "KVCache: positions [{}, {}) of sequence {} are asked for, [{}, {}) are kept", begin, end,
          b, store_->first_kept(b), lengths_[b]);
  const dim_t row_bytes = row_bytes_of(shape_, side, dtype_);
  for (dim_t position = begin; position < end;) {
    const KVStore::Run run = store_->run(side, b, kv_head, position);
    const dim_t count = std::min(run.count, end - position);
    for (dim_t i = 0; i < count; ++i) *rows++ = run.rows + i * row_bytes;
    position += count;
  }
}

std::optional<TensorView> KVCache::dense_keys() const {
  return dense(kKeys);
}

std::optional<TensorView> KVCache::dense_values() const {
  return dense(kValues);
}

std::optional<TensorView> KVCache::dense(int side) const {
  const Tensor* block = store_->dense(side);
  if (block == nullptr) return std::nullopt;
  return block->slice(2, 0, tokens());
}

void KVCache::check_sequence(dim_t b) const {
  require(b >= 0 && b < shape_.batch, "KVCache: sequence {} is outside batch ({})", b,
          shape_.batch);
}

}  // namespace cephalo
