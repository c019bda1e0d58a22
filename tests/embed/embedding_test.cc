#include "cephalo/embed/embedding.h"

#include <gtest/gtest.h>

#include "cephalo/core/random.h"
#include "cephalo/core/views.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

TEST(EmbeddingTest, x_is_the_tokens_row_plus_the_positions_row) {
  TorchGenerator generator(1);
  const Embedding tokens(10, 4, generator);
  const Embedding positions(6, 4, generator);
  Tensor ids = Tensor::zeros({2, 3}, DType::i64);
  ids.set({1, 2}, 7);
  const Tensor x = embed_tokens(tokens, positions, ids);
  EXPECT_EQ(x.shape(), (Shape{2, 3, 4}));
  for (dim_t d = 0; d < 4; ++d) {
    EXPECT_EQ(x.at({1, 2, d}),
              static_cast<float>(tokens.table().at({7, d}) + positions.table().at({2, d})));
  }
}

TEST(EmbeddingTest, an_id_outside_the_table_is_named_A14) {
  TorchGenerator generator(1);
  const Embedding tokens(10, 4, generator);
  Tensor ids = Tensor::zeros({3}, DType::i32);
  ids.set({1}, 10);
  EXPECT_EQ(testing::error_of([&] { tokens(ids); }),
            "embedding: id 10 at position 1 is outside the table of 10 rows");
  EXPECT_EQ(testing::error_of([&] { tokens(Tensor::of({1.5})); }),
            "embedding: ids are float32, int32 or int64 is needed");
  ids.set({1}, -1);
  EXPECT_EQ(testing::error_of([&] { tokens(ids); }),
            "embedding: id -1 at position 1 is outside the table of 10 rows");
}

TEST(EmbeddingTest, more_tokens_than_positions_are_refused) {
  TorchGenerator generator(1);
  const Embedding tokens(10, 4, generator);
  const Embedding positions(2, 4, generator);
  const Tensor ids = Tensor::zeros({1, 3}, DType::i64);
  EXPECT_EQ(testing::error_of([&] { embed_tokens(tokens, positions, ids); }),
            "embedding: tokens (3) exceed context_length (2)");
}

}  // namespace
}  // namespace cephalo
