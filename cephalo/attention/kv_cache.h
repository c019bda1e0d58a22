#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "cephalo/core/tensor.h"

#pragma GCC visibility push(default)
namespace cephalo {

// The sizes of a cache.
struct KVCacheShape {
  dim_t batch = 1;
  dim_t num_kv_heads = 1;
  dim_t head_dim = 0;
  dim_t v_dim = 0;  // 0: head_dim
};

class KVStore;  // where rows are kept: one for each kind of cache

// The keys and values of tokens that have passed, for decoding. Each sequence has its own length. A
// function that throws leaves the cache as it was. Any number of threads may read at once.
class KVCache {
 public:
  enum class Kind { growing, ring, paged };

  // Keeps every token in memory that grows by doubling: one dense block
  // [batch, num_kv_heads, capacity, dim] for keys and one for values.
  static KVCache growing(const KVCacheShape& shape, DType dtype = DType::f32);
  // Keeps the last `capacity` tokens of each sequence, and what the last append brought: attention
  // must see the kept keys and the whole new chunk, so a token is evicted at the next append only.
  static KVCache ring(const KVCacheShape& shape, dim_t capacity, DType dtype = DType::f32);
  // Keeps every token, in pages of `page` tokens of one sequence, allocated when it reaches them;
  // the pages of a cleared sequence are reused.
  static KVCache paged(const KVCacheShape& shape, dim_t page, DType dtype = DType::f32);

  KVCache(KVCache&&) noexcept;
  KVCache& operator=(KVCache&&) noexcept;
  ~KVCache();

  Kind kind() const { return kind_; }
  const KVCacheShape& shape() const { return shape_; }  // with v_dim filled in
  DType dtype() const { return dtype_; }
  dim_t capacity() const { return kind_ == Kind::ring ? room_ : 0; }  // 0: no limit

  // k: [batch, num_kv_heads, new_tokens, head_dim]
  // v: [batch, num_kv_heads, new_tokens, v_dim]
  // counts: how many of new_tokens belong to each sequence (the first ones); empty: all.
  // Any strides and any floating type, rounded to dtype(); not memory of this cache.
  void append(const TensorView& k, const TensorView& v, const std::vector<dim_t>& counts = {});

  // Tokens ever appended to each sequence, which is the position of its next one; and how many of
  // them the last append brought.
  const std::vector<dim_t>& lengths() const { return lengths_; }
  const std::vector<dim_t>& appended() const { return appended_; }
  dim_t tokens() const;             // the longest length
  dim_t first_kept(dim_t b) const;  // positions before it were evicted; 0 but for a ring
  void clear(dim_t b);              // sequence b starts again at position 0
  void clear();                     // all do; memory is kept for what comes
  std::size_t bytes() const;        // of memory held for keys and values

  // The addresses of the rows of positions [begin, end) of one sequence and head, which must be
  // kept. A row is head_dim (v_dim) dense elements of dtype(). Valid until the next append or
  // clear.
  void key_rows(dim_t b, dim_t kv_head, dim_t begin, dim_t end, const void** rows) const;
  void value_rows(dim_t b, dim_t kv_head, dim_t begin, dim_t end, const void** rows) const;

  // [batch, num_kv_heads, tokens(), dim] of a growing cache, valid as long; the others have none.
  // What lies past a sequence's own length is undefined: hide it by lengths(cache.lengths()).
  std::optional<TensorView> dense_keys() const;
  std::optional<TensorView> dense_values() const;

 private:
  // room: the capacity of a ring, the tokens of a page.
  KVCache(Kind kind, const KVCacheShape& shape, dim_t room, DType dtype);

  void check_sequence(dim_t b) const;
  std::vector<dim_t> ends_of(const TensorView& k, const TensorView& v,
                             const std::vector<dim_t>& counts) const;
  void rows_of(int side, dim_t b, dim_t kv_head, dim_t begin, dim_t end, const void** rows) const;
  std::optional<TensorView> dense(int side) const;

  Kind kind_;
  KVCacheShape shape_;
  dim_t room_;
  DType dtype_;
  std::vector<dim_t> lengths_;
  std::vector<dim_t> appended_;
  std::unique_ptr<KVStore> store_;
};

}  // namespace cephalo
#pragma GCC visibility pop
