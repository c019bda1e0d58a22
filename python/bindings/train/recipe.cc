#include "cephalo/train/recipe.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <new>
#include <optional>
#include <utility>

#include "bindings/arrays/gil.h"
#include "bindings/attention/attend.h"
#include "bindings/bindings.h"
#include "bindings/model/gpt_options.h"
#include "bindings/text/windows.h"
#include "bindings/train/trainer.h"
#include "bindings/train/trainer_options.h"
#include "cephalo/core/format.h"

namespace cephalo::python {
namespace {

Recipe choose(std::int64_t vocab_size, std::int64_t training_tokens, std::int64_t validation_tokens,
              const nb::dict& model, const nb::dict& trainer, std::optional<std::int64_t> steps,
              std::optional<std::int64_t> warmup, double repeat_share, double flops,
              std::int64_t memory) {
  constexpr const char* kFunction = "choose_recipe";
  RecipeWishes wishes;
  wishes.model = [&](GptOptions& o) { change_options(o, model, kFunction); };
  wishes.trainer = [&](TrainerOptions& o) { change_options(o, trainer, kFunction); };
  wishes.own_width = model.contains("d_model");
  wishes.own_batch = trainer.contains("batch") || trainer.contains("accumulate");
  wishes.steps = steps;
  wishes.warmup = warmup;
  wishes.repeat_share = repeat_share;
  return choose_recipe({vocab_size, training_tokens, validation_tokens}, wishes, {flops, memory});
}

// -> TrainRows
nb::object rows_of(const nb::object& tokens, const Bpe& bpe, dim_t training_end,
                   const nb::dict& model, const RowRecipe& rows) {
  constexpr const char* kFunction = "recipe_rows";
  GptOptions options;
  change_options(options, model, kFunction);
  const TokensIn found = tokens_in(tokens, bpe.vocab_size(), kFunction, "tokens");
  TrainRows made;
  {
    const WithoutGil released;
    made = recipe_rows(found.tokens, bpe, training_end, options, rows);
  }
  const auto to_object = [&](RowSource& source) -> nb::object {
    if (!source) return nb::none();
    return nb::cast(RowsOfRecipe{std::move(source), options.context_length, found.kind});
  };
  return ResultType("TrainRows")(to_object(made.training), to_object(made.validation));
}

// -> int64 [context_length + 1]
AnyArray row(const RowsOfRecipe& self, std::int64_t number) {
  Tensor ids = Tensor::empty({self.context_length + 1}, DType::i64);
  {
    const WithoutGil released;
    self.source(number,
                {ids.mutable_data_as<std::int64_t>(), static_cast<std::size_t>(ids.numel())});
  }
  return to_python(std::move(ids), self.kind);
}

void bind_rows(nb::module_& m) {
  const RowRecipe d;
  nb::class_<RowRecipe>(m, "RowRecipe", "Which rows a recipe trains and validates with.")
      .def(
          "__init__",
          [](RowRecipe* self, double repeat_share, bool repeat_sentences,
             std::int64_t validation_rows) {
            new (self) RowRecipe{repeat_share, repeat_sentences, validation_rows};
          },
          nb::kw_only(), "repeat_share"_a = d.repeat_share,
          "repeat_sentences"_a = d.repeat_sentences, "validation_rows"_a = d.validation_rows)
      .def_rw("repeat_share", &RowRecipe::repeat_share, "of rows that repeat some of their text")
      .def_rw("repeat_sentences", &RowRecipe::repeat_sentences,
              "half of those return to earlier sentences")
      .def_rw("validation_rows", &RowRecipe::validation_rows)
      .def("__repr__", [](const RowRecipe& r) {
        return format_text("RowRecipe(repeat_share={}, repeat_sentences={}, validation_rows={})",
                           r.repeat_share, r.repeat_sentences ? "True" : "False",
                           r.validation_rows);
      });
  nb::class_<RowsOfRecipe>(m, "RowSource",
                           "Rows for training: rows(number) gives int64 [context_length + 1], the "
                           "same for the same number. Trainer takes it, and so does validation=.")
      .def("__call__", &row, "number"_a)
      .def_ro("context_length", &RowsOfRecipe::context_length);
  m.def("recipe_rows", &rows_of, "tokens"_a, "bpe"_a, "training_end"_a, "model"_a, "rows"_a,
        nb::sig("def recipe_rows(tokens: object, bpe: Bpe, training_end: int, model: dict, rows: "
                "RowRecipe) -> typing.Any"),
        R"(-> (training, validation): a RowSource each, validation None without validation_rows.

tokens: a TokenFile, or ids: an array or a list; those before training_end are for training, the others
for validation. Every row begins with <|endoftext|> where bpe has it, as every text does that the model
will be given. model: options with a seed, as recipe.model or gpt.options have them.)");
}

}  // namespace

void bind_recipe(nb::module_& m) {
  m.def("recipe_vocab_size", &recipe_vocab_size, "corpus_bytes"_a,
        "How many tokens a vocabulary should have for a text of this size.");
  nb::class_<Recipe>(m, "Recipe", "How to teach a model a text; choose_recipe makes it.")
      .def_prop_ro(
          "model", [](const Recipe& r) { return options_dict(r.model); }, "For Gpt(**model).")
      .def_prop_ro(
          "trainer", [](const Recipe& r) { return options_dict(r.trainer); },
          "For Trainer(gpt, rows, **trainer).")
      .def_ro("rows", &Recipe::rows, "For recipe_rows.")
      .def_ro("save_every", &Recipe::save_every, "steps: about once a minute")
      .def_ro("sample_every", &Recipe::sample_every, "five times in a run")
      .def_ro("validate_every", &Recipe::validate_every, "for a tenth of the time at most")
      .def_ro("seconds", &Recipe::seconds, "about, for the whole run; 0: flops are unknown")
      .def("__repr__", [](const Recipe& r) {
        return format_text("Recipe({}, steps={}, batch={}, accumulate={})",
                           options_text(checked_options(r.model, "Recipe")),
                           r.trainer.schedule.steps, r.trainer.batch, r.trainer.accumulate);
      });
  const RecipeWishes d;
  m.def(
      "choose_recipe", &choose, "vocab_size"_a, "training_tokens"_a, "validation_tokens"_a = 0,
      nb::kw_only(), "model"_a = nb::dict(), "trainer"_a = nb::dict(), "steps"_a = nb::none(),
      "warmup"_a = nb::none(), "repeat_share"_a = d.repeat_share, "flops"_a = 0.0, "memory"_a = 0,
      R"(What `cephalo train` does where nothing else was said: the larger the text, the larger the model,
unless the machine would need much more than ten minutes.

model, trainer: options of Gpt and of Trainer that are decided already; a d_model is taken however long
that takes, a batch or accumulate whatever memory it needs. repeat_share: of rows that repeat some of
their text. flops: multiplications and additions a second of the machine; memory: its bytes; 0: unknown,
and nothing is made smaller for it.)");
  bind_rows(m);
}

}  // namespace cephalo::python
