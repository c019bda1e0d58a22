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

// Neighbours of one document; the last run ends with the sequence.
void add_runs(const std::int64_t* ids, dim_t tokens, Numbering& numbering,
              DocumentNumbers::Side& to) {
  to.runs_at.push_back(static_cast<std::int32_t>(to.runs.size()));
  for (dim_t n = 0; n < tokens;) {
    const std::int64_t id = ids[n];
    while (n < tokens && ids[n] == id) ++n;
    to.runs.push_back({static_cast<std::int32_t>(n), numbering.of(id)});
  }
}

// The runs of the last sequence: f(begin, end, document)
template <typename F>
void for_runs(const DocumentNumbers::Side& side, const F& f) {
  int begin = 0;
  for (auto n = static_cast<std::size_t>(side.runs_at.back()); n < side.runs.size(); ++n) {
    f(begin, side.runs[n].end, side.runs[n].document);
    begin = side.runs[n].end;
  }
}

// From where to where each document of the last sequence reaches; do its tokens fill that?
struct Reaches {
  std::vector<IndexSpan> of_document;
  bool together;
};
Reaches reaches(const DocumentNumbers::Side& side, std::size_t documents) {
  Reaches result{std::vector<IndexSpan>(documents, kNothing), true};
  for_runs(side, [&](int begin, int end, int document) {
    if (document < 0) return;
    IndexSpan& span = result.of_document[static_cast<std::size_t>(document)];
    result.together = result.together && span.end <= span.begin;  // met for the first time
    widen(span, {begin, end});
  });
  return result;
}

// What the documents of every `size` tokens reach together.
std::vector<IndexSpan> reaches_of_blocks(const DocumentNumbers::Side& side, dim_t tokens, int size,
                                         const std::vector<IndexSpan>& of_document) {
  std::vector<IndexSpan> spans(static_cast<std::size_t>((tokens + size - 1) / size), kNothing);
  for_runs(side, [&](int begin, int end, int document) {
    if (document < 0) return;
    for (int block = begin / size; block * size < end; ++block) {
      widen(spans[static_cast<std::size_t>(block)],
            of_document[static_cast<std::size_t>(document)]);
    }
  });
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
void add_ones(const DocumentNumbers::Side& side, dim_t tokens, std::vector<int>& ones) {
  const std::size_t first = ones.size();
  const dim_t count = (tokens + kDocumentQueries - 1) / kDocumentQueries;
  ones.resize(first + static_cast<std::size_t>(count), -1);
  for_runs(side, [&](int begin, int end, int document) {
    for (int block = (begin + kDocumentQueries - 1) / kDocumentQueries; block < count; ++block) {
      if (std::min<dim_t>((block + 1) * kDocumentQueries, tokens) > end) break;
      ones[first + static_cast<std::size_t>(block)] = document;
    }
  });
}

void add_reaches(const std::vector<IndexSpan>& spans, std::vector<IndexSpan>& to) {
  for (const IndexSpan& span : spans) to.push_back(span.end == 0 ? IndexSpan{0, 0} : span);
}

void add_sequence(const std::int64_t* q_ids, const std::int64_t* kv_ids, const MaskExtent& extent,
                  DocumentNumbers& to) {
  Numbering numbering;
  to.documents_at.push_back(static_cast<std::int32_t>(to.q.reaches.size()));
  add_runs(q_ids, extent.q_tokens, numbering, to.q);
  add_runs(kv_ids, extent.kv_tokens, numbering, to.kv);
  const Reaches queries = reaches(to.q, numbering.count());
  const Reaches keys = reaches(to.kv, numbering.count());
  to.together = to.together && queries.together && keys.together;
  const std::vector<IndexSpan> of_blocks =
      reaches_of_blocks(to.q, extent.q_tokens, kDocumentQueries, keys.of_document);
  const std::vector<IndexSpan> of_tiles =
      in_order(reaches_of_blocks(to.kv, extent.kv_tokens, kDocumentKeys, queries.of_document));
  to.keys.insert(to.keys.end(), of_blocks.begin(), of_blocks.end());
  to.queries.insert(to.queries.end(), of_tiles.begin(), of_tiles.end());
  add_reaches(queries.of_document, to.q.reaches);
  add_reaches(keys.of_document, to.kv.reaches);
  add_ones(to.q, extent.q_tokens, to.q_one);
  add_ones(to.kv, extent.kv_tokens, to.kv_one);
  int tile = 0;
  for (int block = 0; block < static_cast<int>(of_blocks.size()); ++block) {
    while (tile < static_cast<int>(of_tiles.size()) &&
           of_tiles[static_cast<std::size_t>(tile)].end <= block) {
      ++tile;
    }
    to.first_tile.push_back(tile);
  }
}

// Those that have ids of their own.
dim_t sequences_of(const BoundMask& mask) {
  const dim_t batch = mask.extent().batch;
  const bool shared = batch <= 1 || (mask.q_documents(0) == mask.q_documents(1) &&
                                     mask.kv_documents(0) == mask.kv_documents(1));
  return shared ? std::min<dim_t>(batch, 1) : batch;
}

}  // namespace

DocumentNumbers number_documents(const BoundMask& mask) {
  const MaskExtent& extent = mask.extent();
  DocumentNumbers result{};
  result.together = true;
  result.sequences = sequences_of(mask);
  result.blocks = (extent.q_tokens + kDocumentQueries - 1) / kDocumentQueries;
  result.tiles = (extent.kv_tokens + kDocumentKeys - 1) / kDocumentKeys;
  result.kv_blocks = (extent.kv_tokens + kDocumentQueries - 1) / kDocumentQueries;
  for (dim_t b = 0; b < result.sequences; ++b) {
    add_sequence(mask.q_documents(b), mask.kv_documents(b), extent, result);
  }
  for (DocumentNumbers::Side* side : {&result.q, &result.kv}) {
    side->runs_at.push_back(static_cast<std::int32_t>(side->runs.size()));
  }
  return result;
}

bool documents_are_together(const BoundMask& mask) {
  const MaskExtent& extent = mask.extent();
  for (dim_t b = 0; b < sequences_of(mask); ++b) {
    Numbering numbering;
    DocumentNumbers::Side q, kv;
    add_runs(mask.q_documents(b), extent.q_tokens, numbering, q);
    add_runs(mask.kv_documents(b), extent.kv_tokens, numbering, kv);
    if (!reaches(q, numbering.count()).together || !reaches(kv, numbering.count()).together) {
      return false;
    }
  }
  return true;
}

}  // namespace cephalo
