#include "cephalo/linear/add_tree.h"

#include <algorithm>
#include <vector>

#include "cephalo/core/parallel.h"

namespace cephalo::ops {
namespace {

constexpr dim_t kPiece = 8192;  // of a thread
constexpr dim_t kChunk = 512;   // of every term at once: in the first cache

// The last addition to each term that remains; elsewhere none.
std::vector<std::size_t> last_additions(std::size_t terms, std::span<const Addition> additions) {
  const std::size_t none = additions.size();
  std::vector<std::size_t> last(terms, none);
  for (std::size_t a = 0; a < additions.size(); ++a) {
    last[additions[a].to] = a;
    last[additions[a].from] = none;
  }
  return last;
}

template <typename T>
void add_chunks(std::span<const MutableTensorView> terms, std::span<const Addition> additions) {
  const std::vector<std::size_t> last = last_additions(terms.size(), additions);
  const dim_t all = terms.front().numel();
  const std::size_t rooms = terms.size() * static_cast<std::size_t>(kChunk) * sizeof(T);
  const Region region{.pieces = (all + kPiece - 1) / kPiece,
                      .flops = static_cast<double>(all) * static_cast<double>(additions.size()),
                      .scratch_bytes = rooms + terms.size() * sizeof(const T*)};
  parallel_for(region, [&](dim_t piece, std::byte* scratch) {
    T* room = reinterpret_cast<T*>(scratch);                       // for sums that do not remain
    const T** now = reinterpret_cast<const T**>(scratch + rooms);  // where each term is
    const dim_t end = std::min(all, (piece + 1) * kPiece);
    for (dim_t begin = piece * kPiece; begin < end; begin += kChunk) {
      const dim_t count = std::min(kChunk, end - begin);
      for (std::size_t t = 0; t < terms.size(); ++t) now[t] = terms[t].data_as<T>() + begin;
      for (std::size_t a = 0; a < additions.size(); ++a) {
        const auto [to, from] = additions[a];
        const T* x = now[to];
        const T* y = now[from];
        T* sum = last[to] == a ? terms[to].mutable_data_as<T>() + begin
                               : room + to * static_cast<std::size_t>(kChunk);
        for (dim_t k = 0; k < count; ++k) sum[k] = x[k] + y[k];
        now[to] = sum;
      }
    }
  });
}

}  // namespace

void add_tree(std::span<const MutableTensorView> terms, std::span<const Addition> additions) {
  if (additions.empty()) return;
  terms.front().dtype() == DType::f64 ? add_chunks<double>(terms, additions)
                                      : add_chunks<float>(terms, additions);
}

}  // namespace cephalo::ops
