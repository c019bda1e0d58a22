// Masks of every kind, as times of plain causal or full attention on the same arrays.

#include <limits>
#include <memory>

#include "bench/arrays.h"
#include "bench/yardstick_rows.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"

namespace cephalo::bench {
namespace {

constexpr dim_t kBatch = 4;
constexpr dim_t kHeads = 12;
constexpr dim_t kTokens = 1024;
constexpr dim_t kDim = 64;

Tensor causal_keep() {
  Tensor keep = Tensor::zeros({kTokens, kTokens}, DType::boolean);
  for (dim_t i = 0; i < kTokens; ++i) keep.mutable_view()[i].slice(0, 0, i + 1).fill(1.0);
  return keep;
}

Tensor causal_bias() {
  Tensor bias = Tensor::full({kTokens, kTokens}, -std::numeric_limits<double>::infinity());
  for (dim_t i = 0; i < kTokens; ++i) bias.mutable_view()[i].slice(0, 0, i + 1).fill(0.0);
  return bias;
}

Tensor random_keep() {
  TorchGenerator generator(6);
  Tensor keep = Tensor::empty({kTokens, kTokens}, DType::boolean);
  auto* flags = keep.mutable_data_as<bool>();
  for (dim_t k = 0; k < keep.numel(); ++k) flags[k] = generator.keeps(0.5);
  return keep;
}

// Eight documents of equal length in every sequence.
Tensor document_ids() {
  Tensor ids = Tensor::empty({kTokens}, DType::i64);
  for (dim_t k = 0; k < kTokens; ++k) ids.mutable_data_as<std::int64_t>()[k] = k / (kTokens / 8);
  return ids;
}

Row mask_row(const std::string& words, const Mask& plain, const std::function<Mask()>& make) {
  const std::string than = plain.empty() ? "full" : "causal";
  const std::string name = format_text("mask {}, ×{}", words, than);
  return {name, [=]() -> Comparison {
            const auto a = std::make_shared<Arrays>(Shape{kBatch, kHeads, kTokens, kDim});
            return {attention_side(name, 1.0, a, make()), attention_side(than, 1.0, a, plain),
                    Ratio::time};
          }};
}

}  // namespace

std::vector<Row> mask_rows() {
  const std::vector<dim_t> half_to_all = {kTokens / 2, kTokens * 2 / 3, kTokens * 5 / 6, kTokens};
  return {
      mask_row("keep [q, k] of the triangle", causal(), [] { return keep(causal_keep()); }),
      mask_row("bias [q, k] of the triangle", causal(), [] { return bias(causal_bias()); }),
      mask_row("alibi & causal", causal(), [] { return alibi(alibi_slopes(kHeads)) & causal(); }),
      mask_row("lengths", causal(), [=] { return lengths(half_to_all); }),
      mask_row("lengths & causal", causal(), [=] { return lengths(half_to_all) & causal(); }),
      mask_row("documents(8)", causal(), [] { return documents(document_ids()); }),
      mask_row("documents(8) & causal", causal(),
               [] { return documents(document_ids()) & causal(); }),
      mask_row("bias [batch, heads, q, k]", {},
               [] {
                 return bias(normal({kBatch, kHeads, kTokens, kTokens}, 7));
               }),
      mask_row("keep at random, half", {}, [] { return keep(random_keep()); }),
  };
}

}  // namespace cephalo::bench
