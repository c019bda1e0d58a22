#include "bindings/text/windows.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays/gil.h"
#include "bindings/arrays/ids.h"
#include "bindings/arrays/spellings.h"
#include "bindings/attention/attend.h"
#include "bindings/bindings.h"
#include "cephalo/core/format.h"

namespace cephalo::python {
namespace {

constexpr const char* kName = "Windows";
using Position = std::pair<std::int64_t, std::int64_t>;  // epoch, batch

void construct(WindowsOfText* self, const nb::object& source, dim_t context_length, dim_t stride,
               dim_t batch, bool shuffle, bool drop_last, std::uint64_t seed,
               const std::string& order, std::pair<dim_t, dim_t> range, double repeated_rows,
               std::pair<dim_t, dim_t> repeat, std::optional<std::int64_t> vocab_size,
               std::vector<TokenId> ends) {
  const WindowOptions options{.context_length = context_length,
                              .stride = stride,
                              .batch = batch,
                              .shuffle = shuffle,
                              .drop_last = drop_last,
                              .seed = seed,
                              .order = order_of(order),
                              .range = {range.first, range.second},
                              .repeated_rows = repeated_rows,
                              .repeat_least = repeat.first,
                              .repeat_most = repeat.second,
                              .sentence_ends = std::move(ends)};
  const TokensIn found = tokens_in(source, vocab_size, kName, "source");
  new (self) WindowsOfText(found.tokens, options, found.kind);
}

AnyArray batch(const WindowsOfText& self, std::int64_t epoch, std::int64_t number) {
  WindowBatch found;
  {
    const WithoutGil released;
    found = self.windows->batch({epoch, number});
  }
  return nb::borrow<AnyArray>(
      ResultType("WindowBatch")(to_python(std::move(found.inputs), self.kind),
                                to_python(std::move(found.targets), self.kind)));
}

AnyArray item(const WindowsOfText& self, std::int64_t index) {
  const dim_t count = self.windows->batches_per_epoch();
  if (index < -count || index >= count) throw nb::index_error("Windows: index out of range");
  return batch(self, 0, index < 0 ? index + count : index);
}

AnyArray row(const WindowsOfText& self, std::int64_t number) {
  Tensor ids = Tensor::empty({self.windows->options().context_length + 1}, DType::i64);
  {
    const WithoutGil released;
    self.windows->row(number,
                      {ids.mutable_data_as<std::int64_t>(), static_cast<std::size_t>(ids.numel())});
  }
  return to_python(std::move(ids), self.kind);
}

Position after(const WindowsOfText& self, std::int64_t epoch, std::int64_t number) {
  const WindowPosition next = self.windows->after({epoch, number});
  return {next.epoch, next.batch};
}

std::string text_of(const WindowsOfText& self) {
  const WindowOptions& o = self.windows->options();
  return format_text(
      "Windows(context_length={}, stride={}, batch={}, shuffle={}), {} windows, {} batches",
      o.context_length, o.stride, o.batch, o.shuffle ? "True" : "False", self.windows->count(),
      self.windows->batches_per_epoch());
}

void bind_facts(nb::class_<WindowsOfText>& windows) {
  windows
      .def_prop_ro(
          "count", [](const WindowsOfText& w) { return w.windows->count(); },
          "Windows in the corpus.")
      .def_prop_ro(
          "rows_per_epoch", [](const WindowsOfText& w) { return w.windows->rows_per_epoch(); },
          "Fewer than count where drop_last leaves some out.")
      .def_prop_ro("batches_per_epoch",
                   [](const WindowsOfText& w) { return w.windows->batches_per_epoch(); })
      .def_prop_ro("context_length",
                   [](const WindowsOfText& w) { return w.windows->options().context_length; })
      .def_prop_ro("order",
                   [](const WindowsOfText& w) { return word_of(w.windows->options().order); })
      .def("__len__", [](const WindowsOfText& w) { return w.windows->batches_per_epoch(); })
      .def("__repr__", &text_of);
}

}  // namespace

TokensIn tokens_in(const nb::object& source, std::optional<std::int64_t> vocab_size,
                   const char* function, const char* name) {
  if (nb::isinstance<TokenFile>(source)) {
    return {nb::cast<std::shared_ptr<TokenFile>>(source), kind_without_caller(DType::i64)};
  }
  const IdsIn ids(source, function, name);
  std::vector<TokenId> tokens = ids.tokens();
  const std::int64_t least =
      tokens.empty() ? 1 : std::int64_t{1} + *std::max_element(tokens.begin(), tokens.end());
  return {std::make_shared<TokensInMemory>(std::move(tokens), vocab_size.value_or(least)),
          ids.kind()};
}

void bind_windows(nb::module_& m) {
  m.def(
      "split_tokens",
      [](dim_t tokens, double fraction) {
        const auto [kept, last] = split_tokens(tokens, fraction);
        return std::pair(std::pair(kept.begin, kept.end), std::pair(last.begin, last.end));
      },
      "tokens"_a, "fraction"_a,
      "The ranges of tokens for training and, the last `fraction`, for validation: each (begin, "
      "end), as\n"
      "Windows takes them.");
  m.def("sentence_ends", &sentence_ends, "bpe"_a,
        "Ids of the tokens that end a sentence, for Windows(..., sentence_ends=...).");
  nb::class_<WindowsOfText> windows(
      m, kName,
      "Windows of context_length + 1 tokens of a corpus, as batches for training. windows[i] is "
      "batch i of epoch 0, (inputs, targets), each int64 [batch, context_length], targets one "
      "token further on; `for inputs, targets in windows` goes through that epoch. A batch depends "
      "only on its number, so the number is all you need to keep to continue later.");
  windows.def("__init__", &construct, "source"_a, "context_length"_a = 256, nb::kw_only(),
              "stride"_a = 0, "batch"_a = 1, "shuffle"_a = false, "drop_last"_a = true,
              "seed"_a = 123, "order"_a = "counter", "range"_a = std::pair<dim_t, dim_t>(0, -1),
              "repeated_rows"_a = 0.0, "repeat"_a = std::pair<dim_t, dim_t>(20, 100),
              "vocab_size"_a = nb::none(), "sentence_ends"_a = std::vector<TokenId>(),
              R"(source: a TokenFile, or ids: an array or a list; batches are of its kind.

stride: from one window to the next; 0: context_length. drop_last: leave out a last batch with fewer
rows. order: "counter", or "torch", that of DataLoader(shuffle=True) after torch.manual_seed(seed).
range: tokens (begin, end) of the source, end -1: to the last. repeated_rows: this share of the rows
repeats a segment of itself, from repeat[0] to repeat[1] tokens long. vocab_size: for ids in memory.
sentence_ends: tokens that end a sentence, as returned by cephalo.sentence_ends(bpe); then half of
the repeated rows repeat earlier sentences of their text instead.)");
  windows.def("batch", &batch, "epoch"_a, "batch"_a, "-> (inputs, targets) of any epoch.")
      .def("__getitem__", &item, "index"_a)
      .def("after", &after, "epoch"_a, "batch"_a, "The position that follows: (epoch, batch).")
      .def("row", &row, "number"_a,
           "Row `number`, counted over all epochs: int64 [context_length + 1]");
  bind_facts(windows);
}

}  // namespace cephalo::python
