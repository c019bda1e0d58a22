#include "cephalo/attention/reference/dropout.h"

#include <cmath>
#include <optional>

#include "cephalo/attention/reference/scores.h"
#include "cephalo/core/random.h"

namespace cephalo {
namespace {

void draw_by_counter(const AttendProblem& p, Tensor& kept) {
  const auto threshold = static_cast<std::uint64_t>(std::ceil(p.options.dropout * 0x1p32));
  const Place& whole = p.mask.place();
  for_rows<std::uint8_t>(kept, 20.0, 0, [&](const PairRow& row, std::uint8_t* keep, double*) {
    const auto position = static_cast<std::uint32_t>(p.mask.position(row.b, row.i));
    const auto head = static_cast<std::uint32_t>(whole.heads.begin + row.h);
    const auto batch = static_cast<std::uint32_t>(whole.batch.begin + row.b);
    PhiloxCounter words{};
    for (dim_t j = 0; j < kept.dim(3); ++j) {
      const dim_t key = p.mask.key_position(j);
      if (j == 0 || key % 4 == 0) {
        words =
            philox(p.options.seed, {static_cast<std::uint32_t>(key / 4), position, head, batch});
      }
      keep[j] = words[static_cast<std::size_t>(key % 4)] >= threshold ? 1 : 0;
    }
  });
}

// In the memory order of PyTorch's weights.
void draw_in_torch_order(const AttendProblem& p, Tensor& kept) {
  const double probability = 1.0 - p.options.dropout;
  TorchGenerator& generator = *p.options.generator;
  const bool mkl = p.options.dropout_stream == DropoutStream::torch_mkl;
  const dim_t batch = kept.dim(0), num_heads = kept.dim(1);
  const dim_t pairs = kept.dim(2) * kept.dim(3);
  // One module call per head draws one mkl seed each; otherwise one call draws for all heads.
  std::optional<Mcg31> stream;
  for (dim_t m = 0; m < batch * num_heads; ++m) {
    const bool in_turn = p.options.heads_draw_in_turn;
    const dim_t matrix = in_turn ? m % batch * num_heads + m / batch : m;
    if (mkl && (m == 0 || (in_turn && m % batch == 0))) stream.emplace(generator.random());
    auto* keep = kept.mutable_data_as<std::uint8_t>() + matrix * pairs;
    for (dim_t k = 0; k < pairs; ++k) {
      keep[k] = (mkl ? stream->keeps(probability) : generator.keeps(probability)) ? 1 : 0;
    }
  }
}

}  // namespace

Tensor draw_kept(const AttendProblem& problem) {
  Tensor kept = Tensor::empty(
      {problem.q.dim(0), problem.q.dim(1), problem.q.dim(2), problem.k.dim(2)}, DType::u8);
  if (problem.options.dropout_stream == DropoutStream::counter) {
    draw_by_counter(problem, kept);
  } else {
    draw_in_torch_order(problem, kept);
  }
  return kept;
}

template <typename T>
void apply_dropout(Tensor& pairs, const Tensor& kept, double p) {
  const T grown = static_cast<T>(dropout_scale(p, DTypeOf<T>::value));
  const auto* all = kept.data_as<std::uint8_t>();
  for_rows<T>(pairs, 1.0, 0, [&](const PairRow& row, T* numbers, double*) {
    const dim_t kv_tokens = pairs.dim(3);
    const std::uint8_t* keep =
        all + ((row.b * pairs.dim(1) + row.h) * pairs.dim(2) + row.i) * kv_tokens;
    for (dim_t j = 0; j < kv_tokens; ++j) numbers[j] *= keep[j] != 0 ? grown : T{0};
  });
}

template void apply_dropout<float>(Tensor&, const Tensor&, double);
template void apply_dropout<double>(Tensor&, const Tensor&, double);

}  // namespace cephalo
