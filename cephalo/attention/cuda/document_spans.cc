#include "cephalo/attention/cuda/document_spans.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

namespace cephalo {
namespace {

using kernels::cuda::IndexSpan;
using kernels::cuda::kDocumentKeys;
using kernels::cuda::kDocumentQueries;

constexpr IndexSpan kNothing{std::numeric_limits<int>::max(), 0};

void widen(IndexSpan& span, const IndexSpan& by) {
  span = {std::min(span.begin, by.begin), std::max(span.end, by.end)};
}

// Ids of one sequence, numbered in the order in which they are met. Neighbours mostly have the
// same.
class Numbering {
 public:
  std::int32_t of(std::int64_t id) {
    if (id < 0) return -1;
    if (id != last_id_) {
      last_number_ =
          numbers_.try_emplace(id, static_cast<std::int32_t>(numbers_.size())).first->second;
      last_id_ = id;
    }
    return last_number_;
  }
  std::size_t count() const { return numbers_.size(); }

 private:
  std::unordered_map<std::int64_t, std::int32_t> numbers_;
  std::int64_t last_id_ = -1;
  std::int32_t last_number_ = -1;
};

// From where to where each document reaches.
std::vector<IndexSpan> reaches(const std::int32_t* numbers, dim_t tokens, std::size_t documents) {
  std::vector<IndexSpan> spans(documents, kNothing);
  for (int n = 0; n < static_cast<int>(tokens); ++n) {
    if (numbers[n] >= 0) widen(spans[static_cast<std::size_t>(numbers[n])], {n, n + 1});
  }
  return spans;
}

// What the documents of every `size` tokens reach together.
std::vector<IndexSpan> reaches_of_blocks(const std::int32_t* numbers, dim_t tokens, int size,
                                         const std::vector<IndexSpan>& of_document) {
  std::vector<IndexSpan> spans(static_cast<std::size_t>((tokens + size - 1) / size), kNothing);
  for (dim_t n = 0; n < tokens; ++n) {
    if (numbers[n] < 0) continue;
    widen(spans[static_cast<std::size_t>(n / size)],
          of_document[static_cast<std::size_t>(numbers[n])]);
  }
  return spans;
}

// Spans of queries in whole blocks, widened until neither end falls from tile to tile: the tiles
// that hold a block are then neighbours, and can be counted.
std::vector<IndexSpan> in_order(std::vector<IndexSpan> spans) {
  int begin = std::numeric_limits<int>::max(), end = 0;
  for (IndexSpan& span : spans) {
    end = std::max(end, (span.end + kDocumentQueries - 1) / kDocumentQueries);
    span.end = end;
  }
  for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
    begin = std::min(begin, span->begin / kDocumentQueries);
    span->begin = begin;
  }
  return spans;
}

// Adds, for every 64 tokens, the document that they are all of, or −1.
void add_ones(const std::int32_t* numbers, dim_t tokens, std::vector<int>& ones) {
  for (dim_t n = 0; n < tokens; n += kDocumentQueries) {
    const std::int32_t* end = numbers + std::min<dim_t>(n + kDocumentQueries, tokens);
    const bool same = std::all_of(numbers + n, end, [&](int each) { return each == numbers[n]; });
    ones.push_back(same ? numbers[n] : -1);
  }
}

void add_sequence(const std::int64_t* q_ids, const std::int64_t* kv_ids, const MaskExtent& extent,
                  DocumentNumbers& to) {
  Numbering numbering;
  for (dim_t i = 0; i < extent.q_tokens; ++i) to.q.push_back(numbering.of(q_ids[i]));
  for (dim_t j = 0; j < extent.kv_tokens; ++j) to.kv.push_back(numbering.of(kv_ids[j]));
  const std::int32_t* q = to.q.data() + to.q.size() - extent.q_tokens;
  const std::int32_t* kv = to.kv.data() + to.kv.size() - extent.kv_tokens;
  const std::vector<IndexSpan> queries = reaches(q, extent.q_tokens, numbering.count());
  const std::vector<IndexSpan> keys = reaches(kv, extent.kv_tokens, numbering.count());
  const std::vector<IndexSpan> of_blocks =
      reaches_of_blocks(q, extent.q_tokens, kDocumentQueries, keys);
  const std::vector<IndexSpan> of_tiles =
      in_order(reaches_of_blocks(kv, extent.kv_tokens, kDocumentKeys, queries));
  to.keys.insert(to.keys.end(), of_blocks.begin(), of_blocks.end());
  to.queries.insert(to.queries.end(), of_tiles.begin(), of_tiles.end());
  add_ones(q, extent.q_tokens, to.q_one);
  add_ones(kv, extent.kv_tokens, to.kv_one);
  int tile = 0;
  for (int block = 0; block < static_cast<int>(of_blocks.size()); ++block) {
    while (tile < static_cast<int>(of_tiles.size()) &&
           of_tiles[static_cast<std::size_t>(tile)].end <= block) {
      ++tile;
    }
    to.first_tile.push_back(tile);
  }
}

}  // namespace

DocumentNumbers number_documents(const BoundMask& mask) {
  const MaskExtent& extent = mask.extent();
  const bool shared = extent.batch <= 1 || (mask.q_documents(0) == mask.q_documents(1) &&
                                            mask.kv_documents(0) == mask.kv_documents(1));
  DocumentNumbers result{};
  result.sequences = shared ? std::min<dim_t>(extent.batch, 1) : extent.batch;
  result.blocks = (extent.q_tokens + kDocumentQueries - 1) / kDocumentQueries;
  result.tiles = (extent.kv_tokens + kDocumentKeys - 1) / kDocumentKeys;
  result.kv_blocks = (extent.kv_tokens + kDocumentQueries - 1) / kDocumentQueries;
  for (dim_t b = 0; b < result.sequences; ++b) {
    add_sequence(mask.q_documents(b), mask.kv_documents(b), extent, result);
  }
  return result;
}

}  // namespace cephalo
