#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "cephalo/model/gpt_options.h"
#include "cephalo/text/bpe.h"
#include "cephalo/text/token_file.h"
#include "cephalo/train/trainer.h"

#pragma GCC visibility push(default)
namespace cephalo {

// How to teach a model a text: which sizes, how long, from which rows. What `cephalo train` does
// where nothing else was said.

// How many tokens a vocabulary should have for a text of this size.
std::int64_t recipe_vocab_size(std::int64_t corpus_bytes);

// The text in numbers.
struct RecipeText {
  std::int64_t vocab_size = 0;
  std::int64_t training_tokens = 0;
  std::int64_t validation_tokens = 0;
};

// What the machine has; 0: unknown, and nothing is made smaller for it.
struct RecipeMachine {
  double flops = 0.0;       // multiplications and additions a second
  std::int64_t memory = 0;  // bytes
};

// What was decided before. `model` and `trainer` change what the recipe proposes; they are called
// once for each size that is considered.
struct RecipeWishes {
  std::function<void(GptOptions&)> model = {};
  std::function<void(TrainerOptions&)> trainer = {};
  bool own_width = false;  // d_model is wished for: it is taken however long that takes
  bool own_batch = false;  // and so are the rows of a pass, whatever memory they need
  std::optional<std::int64_t> steps = {};
  std::optional<std::int64_t> warmup = {};
  double repeat_share = 0.2;  // without repeated rows, no induction head forms in ten minutes
};

// How the rows of a run are made from its text.
struct RowRecipe {
  double repeat_share = 0.0;  // of rows that repeat some of their text
  bool repeat_sentences = false;
  std::int64_t validation_rows = 0;
};

// Everything that a run needs to know besides its text.
struct Recipe {
  GptOptions model;
  TrainerOptions trainer;
  RowRecipe rows;
  std::int64_t save_every = 0;
  std::int64_t sample_every = 0;
  std::int64_t validate_every = 0;
  double seconds = 0.0;  // about, for the whole run; 0: the machine is unknown
};

// The larger the text, the larger the model, unless the machine would need much more than ten
// minutes.
Recipe choose_recipe(const RecipeText& text, const RecipeWishes& wishes = {},
                     const RecipeMachine& machine = {});

// Where a run takes its rows from.
struct TrainRows {
  RowSource training;
  RowSource validation;  // rows.validation_rows of them, at equal distances; or empty
};

// Tokens up to training_end are for training, the others for validation. Every row begins with
// <|endoftext|> where the vocabulary has it, as every text that the model will be given does.
// model: with a seed
TrainRows recipe_rows(const std::shared_ptr<const TokenSource>& tokens, const Bpe& bpe,
                      dim_t training_end, const GptOptions& model, const RowRecipe& rows);

}  // namespace cephalo
#pragma GCC visibility pop
