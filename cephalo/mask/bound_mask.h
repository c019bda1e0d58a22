#pragma once

#include <cstdint>
#include <vector>

#include "cephalo/mask/mask.h"
#include "cephalo/mask/place.h"

#pragma GCC visibility push(default)
namespace cephalo {

// The sizes a mask is asked about.
struct MaskExtent {
  dim_t batch = 1;
  dim_t num_heads = 1;
  dim_t q_tokens = 0;
  dim_t kv_tokens = 0;
};

// The sizes of the whole that a problem of these sizes is a rectangle of; throws when it lies
// outside.
MaskExtent whole_of(const Place& place, const MaskExtent& extent, const char* function);

// What a kernel needs to know of a tile: skip it, compute it without a test, or look at each pair.
enum class Tile { hidden, visible, mixed };

// A mask checked against sizes, ready to be asked. Borrows the mask.
class BoundMask {
 public:
  // Throws when a part does not fit the sizes, or the rectangle its whole; `function` begins the
  // message. Everything is asked by the rectangle's own indices. Tensors of the mask lie on the
  // problem's device: unless that is the host, only what positions say can be asked here.
  BoundMask(const Mask& mask, const MaskExtent& extent, const char* function,
            const Place& place = {}, Device device = {});
  BoundMask(Mask&& mask, const MaskExtent& extent, const char* function, const Place& place = {},
            Device device = {}) = delete;

  const MaskExtent& extent() const { return extent_; }
  const MaskExtent& whole() const { return whole_; }  // what the rectangle is a part of
  const Place& place() const { return place_; }
  bool has_all_keys() const { return extent_.kv_tokens == whole_.kv_tokens; }
  bool hides_nothing() const { return hides_nothing_; }
  bool adds() const { return adds_; }  // a bias or alibi part is there

  // p(i), and the position of key j: places in the whole.
  dim_t position(dim_t b, dim_t i) const { return i + sequence(b).shift + place_.kv_tokens.begin; }
  dim_t key_position(dim_t j) const { return j + place_.kv_tokens.begin; }

  // May query i of head h look at key j?
  bool visible(dim_t b, dim_t h, dim_t i, dim_t j) const;
  // The sum of everything that is added to that score: 0 without bias and alibi.
  double added(dim_t b, dim_t h, dim_t i, dim_t j) const;
  // visible for all keys of one query: keep[0 .. kv_tokens).
  void row(dim_t b, dim_t h, dim_t i, std::uint8_t* keep) const;

  // The answer for queries [i_begin, i_end) and keys [j_begin, j_end). `hidden` and `visible` are
  // always true; `mixed` may also stand for a tile that is all one thing, when only a look at each
  // pair could tell. A tile with a bias is never `visible`.
  Tile tile(dim_t b, dim_t h, dim_t i_begin, dim_t i_end, dim_t j_begin, dim_t j_end) const;

  // The keys [begin, end) that positions leave to query i: lengths, causal with its prefix, and
  // window, all of them and exactly. Every other answer by position follows from this one. The
  // other parts are not looked at.
  struct KeyRange {
    dim_t begin;
    dim_t end;
  };
  KeyRange span(dim_t b, dim_t i) const;
  // The smallest range around the spans of queries [i_begin, i_end).
  KeyRange key_range(dim_t b, dim_t i_begin, dim_t i_end) const;

  // For engines that look at tiles of at most 64 queries: words[j − j_begin] gets bit i − i_begin
  // where key j is in the span of query i. And the other parts.
  void position_bits(dim_t b, dim_t i_begin, dim_t i_end, dim_t j_begin, dim_t j_end,
                     std::uint64_t* words) const;
  // The other way round, for at most 64 keys: bit j − j_begin where key j is in the span.
  std::uint64_t key_bits(dim_t b, dim_t i, dim_t j_begin, dim_t j_end) const;
  Tile tile_by_position(dim_t b, dim_t i_begin, dim_t i_end, dim_t j_begin, dim_t j_end) const;
  Tile tile_by_document(dim_t b, dim_t i_begin, dim_t i_end, dim_t j_begin, dim_t j_end) const;
  double slope(dim_t h) const;  // of all alibi parts together
  bool has_documents() const { return mask_.documents != nullptr; }
  const std::int64_t* q_documents(dim_t b) const;   // [q_tokens]
  const std::int64_t* kv_documents(dim_t b) const;  // [kv_tokens]

  // A tensor part with a stride for each of batch, head, query and key; 0 where it broadcasts.
  struct Part {
    MaskTensor::Role role;
    TensorView view;
    dim_t stride[4];
    dim_t offset(dim_t b, dim_t h, dim_t i, dim_t j) const {
      return b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3];
    }
  };
  const std::vector<Part>& parts() const { return parts_; }
  // Numbers that lie on a device, which spans then do not know of.
  bool has_device_parts() const { return !mask_.device_parts.empty(); }
  const std::vector<DevicePart>& device_parts() const { return mask_.device_parts; }
  // The last query is at the position of the last key.
  bool is_from_the_end() const;

  // The rule by position for the queries of one sequence, counted from the rectangle's beginning.
  struct Sequence {
    dim_t q_len, kv_len;
    dim_t shift;  // from query i to the key at its position
    dim_t prefix, left, right;

    // The span of query i < q_len; empty where begin >= end. Both ends never fall as i grows.
    KeyRange span(dim_t i) const;
  };
  // One for all sequences, or one for each.
  const std::vector<Sequence>& sequences() const { return sequences_; }

 private:
  const Sequence& sequence(dim_t b) const {
    return sequences_[sequences_.size() == 1 ? 0 : static_cast<std::size_t>(b)];
  }
  void bind_positions(const char* function);
  void bind_tensors(const char* function);
  void bind_documents(const char* function) const;
  void bind_device_parts(const char* function) const;
  void bind_ends(const DevicePart& part, const char* function) const;
  std::size_t whole_head(dim_t h) const { return static_cast<std::size_t>(place_.heads.begin + h); }
  bool same_document(dim_t b, dim_t i, dim_t j) const;
  bool visible_by_content(dim_t b, dim_t h, dim_t i, dim_t j) const;

  const Mask& mask_;
  MaskExtent extent_;
  Place place_;
  MaskExtent whole_;
  std::vector<Sequence> sequences_;
  std::vector<Part> parts_;
  bool hides_nothing_ = false;
  bool adds_ = false;
};

}  // namespace cephalo
#pragma GCC visibility pop
