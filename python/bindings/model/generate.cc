#include "cephalo/model/generate.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <shared_mutex>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/callback.h"
#include "bindings/arrays/gil.h"
#include "bindings/arrays/ids.h"
#include "bindings/arrays/text.h"
#include "bindings/attention/attend.h"
#include "bindings/bindings.h"
#include "bindings/core/random.h"
#include "bindings/model/gpt.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"

namespace cephalo::python {
namespace {

// The new text; a token that ended it is no part of it.
nb::object text_of(const Model& model, const Generated& found,
                   const std::vector<std::int64_t>& stop) {
  if (!model.tokenizer) return nb::none();
  std::string bytes;
  for (std::size_t k = 0; k < found.ids.size(); ++k) {
    const std::int64_t id = found.ids[k];
    const bool ends = k + 1 == found.ids.size() && std::count(stop.begin(), stop.end(), id) > 0;
    if (ends || id >= model.tokenizer->vocab_size()) continue;
    bytes += model.tokenizer->token(static_cast<TokenId>(id));
  }
  return to_str(bytes);
}

void warn_of_a_cut(const GptOptions& model, dim_t prompt_tokens) {
  const dim_t seen = tokens_seen(model, prompt_tokens);
  if (seen == prompt_tokens) return;
  const std::string warning = format_text(
      "generate: the prompt has {} tokens and the model's context_length is {}; only the last {} "
      "are used",
      prompt_tokens, model.context_length, seen);
  if (PyErr_WarnEx(PyExc_UserWarning, warning.c_str(), 1) != 0) throw nb::python_error();
}

AnyArray generate_python(Model& self, const nb::object& prompt, dim_t new_tokens,
                         double temperature, dim_t top_k, double top_p, double repetition_penalty,
                         dim_t repetition_window, std::uint64_t seed,
                         const std::optional<std::vector<std::int64_t>>& stop,
                         std::optional<bool> begin, const nb::object& on_token, bool cached,
                         std::optional<int> threads) {
  const Callback told(on_token, "generate", "on_token");
  const std::vector<std::int64_t> ids = self.ids_of(prompt, begin, "generate", "prompt");
  GenerateOptions options{
      .new_tokens = new_tokens,
      .sampling = {temperature, top_k, top_p, repetition_penalty, repetition_window},
      .seed = seed,
      .cached = cached,
      .threads = threads.value_or(0)};
  if (stop) {
    options.stop_tokens = *stop;
  } else if (self.config.eos_token_id) {
    options.stop_tokens = {*self.config.eos_token_id};
  }
  warn_of_a_cut(self.gpt.options(), std::ssize(ids));
  Generated found;
  {
    const WithoutGil released;
    self.prepare_once();
    std::shared_lock turn(self.turn);
    options.on_token = [&](std::int64_t id) {
      bool goes_on = true;
      while_open(turn, [&] {
        const WithGil held;
        check_signals();
        if (!told.given()) return;
        told.call([&](const nb::object& said) { goes_on = !said.is(nb::bool_(false)); }, id);
      });
      return goes_on;
    };
    found = generate(self.gpt, ids, options);
  }
  return nb::borrow<AnyArray>(
      ResultType("Generated")(to_list(found.ids), text_of(self, found, options.stop_tokens),
                              found.stopped, found.prompt_seconds, found.seconds));
}

std::int64_t sample(const AnyArray& logits, double temperature, dim_t top_k, double top_p,
                    double repetition_penalty, dim_t repetition_window,
                    const std::vector<std::int64_t>& text, Generator& generator) {
  const ArrayIn numbers(logits, "sample_token", "logits");
  const WithoutGil released;
  const GeneratorTurn turn(&generator);
  const SamplingOptions options{temperature, top_k, top_p, repetition_penalty, repetition_window};
  return sample_token(numbers, options, *turn.stream(), text);
}

}  // namespace

void bind_generate(nb::module_& m) {
  const nb::object model = m.attr("Gpt");
  nb::setattr(
      model, "generate",
      nb::cpp_function(
          &generate_python, nb::name("generate"), nb::scope(model), nb::is_method(), "prompt"_a,
          "new_tokens"_a = 100, nb::kw_only(), "temperature"_a = 1.0, "top_k"_a = 0,
          "top_p"_a = 1.0, "repetition_penalty"_a = 1.0, "repetition_window"_a = 64, "seed"_a = 123,
          "stop"_a = nb::none(), "begin"_a = nb::none(), "on_token"_a = nb::none(),
          "cached"_a = true, "threads"_a = nb::none(),
          R"(Continues a prompt: text, or ids of one sequence -> Generated(ids, text, stopped, ...).

temperature: 0 always takes the likeliest. top_k: draw only from the k likeliest; top_p: only from the
likeliest that together reach p. repetition_penalty: logits of ids among the last
repetition_window of the text (0: all of it) are divided by it, negative ones multiplied. stop: ids that end the text; None: eos_token_id, [] for none.
begin: prepend the token that begins a text; None: as config.json says.
on_token(id) is called for every token; if it returns False, the text ends there.
cached=False: recompute the whole window for every token, for comparison.)"));
  m.def("sample_token", &sample, "logits"_a, "temperature"_a = 1.0, "top_k"_a = 0, "top_p"_a = 1.0,
        nb::kw_only(), "repetition_penalty"_a = 1.0, "repetition_window"_a = 64,
        "text"_a = std::vector<std::int64_t>(), "generator"_a,
        "logits: [vocab_size] -> an id: the repetition penalty on ids of the text so far,\n"
        "temperature, then top_k, then top_p, then one draw from a TorchGenerator.");
}

}  // namespace cephalo::python
