#include "cephalo/text/bpe_trainer.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "bindings/arrays/callback.h"
#include "bindings/arrays/gil.h"
#include "bindings/arrays/text.h"
#include "bindings/arrays/turn.h"
#include "bindings/bindings.h"

namespace cephalo::python {
namespace {

constexpr const char* kName = "BpeTrainer";

struct TrainerOfBpe {
  explicit TrainerOfBpe(BpeTrainOptions options) : trainer(std::move(options)) {}
  BpeTrainer trainer;
  Turn turn{kName};
};

void add_text(TrainerOfBpe& self, const nb::object& text) {
  const TextIn letters(text, kName, "text");
  const WithoutGil released;
  const std::unique_lock turn(self.turn);
  self.trainer.add_text(letters.view());
}

void add_file(TrainerOfBpe& self, const std::filesystem::path& path, const nb::object& progress) {
  const Callback told(progress, kName, "progress");
  const WithoutGil released;
  const std::unique_lock turn(self.turn);
  self.trainer.add_file(path.string(), progress_of(told));
}

Bpe train(TrainerOfBpe& self, const nb::object& progress) {
  const Callback told(progress, kName, "progress");
  const WithoutGil released;
  const std::unique_lock turn(self.turn);
  return self.trainer.train(progress_of(told));
}

}  // namespace

void bind_bpe_trainer(nb::module_& m) {
  nb::class_<TrainerOfBpe>(m, kName,
                           "Learns a byte-level BPE from text: repeatedly, the most frequent pair "
                           "of neighbours becomes a token. The same corpus gives the same files.")
      .def(
          "__init__",
          [](TrainerOfBpe* self, std::int64_t vocab_size, std::int64_t min_count,
             std::vector<std::string> special_tokens) {
            new (self) TrainerOfBpe({.vocab_size = vocab_size,
                                     .min_count = min_count,
                                     .special_tokens = std::move(special_tokens)});
          },
          "vocab_size"_a = 4096, nb::kw_only(), "min_count"_a = 2,
          "special_tokens"_a = std::vector<std::string>{"<|endoftext|>"},
          "vocab_size: 256 bytes, merges and special tokens together. min_count: rarer pairs are "
          "never joined. special_tokens get the last ids.")
      .def("add_text", &add_text, "text"_a,
           nb::sig("def add_text(self, text: str | bytes) -> None"))
      .def("add_file", &add_file, "path"_a, "progress"_a = nb::none(),
           "A text file, read in blocks. progress(done, all): bytes of it.")
      .def("train", &train, "progress"_a = nb::none(),
           "-> Bpe, with fewer tokens if the corpus has too few repetitions.\n"
           "progress(done, all): tokens of the vocabulary.");
}

}  // namespace cephalo::python
