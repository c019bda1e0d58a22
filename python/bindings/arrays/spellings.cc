#include "bindings/arrays/spellings.h"

#include <array>
#include <utility>
#include <vector>

#include "cephalo/attention/plan.h"
#include "cephalo/core/format.h"

namespace cephalo::python {
namespace {

namespace nb = nanobind;

template <typename Value, std::size_t size>
using Words = std::array<std::pair<const char*, Value>, size>;

[[noreturn]] void refuse_word(const std::string& word, const std::vector<std::string>& known,
                              const std::string& who) {
  throw nb::value_error(
      format_text("{} is \"{}\"; it must be one of {}", who, word, joined(known, ", ")).c_str());
}

template <typename Value, std::size_t size>
Value look_up(const std::string& word, const Words<Value, size>& words, const std::string& who) {
  std::vector<std::string> known;
  for (const auto& [name, value] : words) {
    if (word == name) return value;
    known.push_back(format_text("\"{}\"", name));
  }
  refuse_word(word, known, who);
}

// One of the library's engines; `known` are the words besides them.
Engine engine_named(const std::string& word, std::vector<std::string> known,
                    const std::string& who) {
  for (const NamedEngine& each : named_engines()) {
    if (word == each.name) return each.engine;
    known.push_back(format_text("\"{}\"", each.name));
  }
  refuse_word(word, known, who);
}

template <typename Value, std::size_t size>
const char* word_for(Value wanted, const Words<Value, size>& words) {
  for (const auto& [name, value] : words) {
    if (value == wanted) return name;
  }
  return "";
}

constexpr Words<ScoresTap, 3> kTaps = {{{"scaled", ScoresTap::scaled},
                                        {"softcapped", ScoresTap::softcapped},
                                        {"masked", ScoresTap::masked}}};
constexpr Words<DropoutStream, 3> kStreams = {{{"counter", DropoutStream::counter},
                                               {"torch", DropoutStream::torch},
                                               {"torch_mkl", DropoutStream::torch_mkl}}};
constexpr Words<Arithmetic, 2> kArithmetics = {
    {{"exact", Arithmetic::exact}, {"bf16x3", Arithmetic::bf16x3}}};
constexpr Words<Form, 7> kForms = {{{"separate", Form::separate},
                                    {"raw", Form::raw},
                                    {"heads", Form::heads},
                                    {"linear", Form::linear},
                                    {"joined", Form::joined},
                                    {"torch", Form::torch},
                                    {"gpt2", Form::gpt2}}};
constexpr Words<Align, 2> kAligns = {
    {{"bottom_right", Align::bottom_right}, {"top_left", Align::top_left}}};
constexpr Words<WordTokenizer::Version, 2> kVersions = {
    {{"v1", WordTokenizer::Version::v1}, {"v2", WordTokenizer::Version::v2}}};
constexpr Words<ShuffleOrder, 2> kOrders = {
    {{"counter", ShuffleOrder::counter}, {"torch", ShuffleOrder::torch}}};
constexpr Words<GptNames, 2> kNames = {
    {{"hugging_face", GptNames::hugging_face}, {"book", GptNames::book}}};
constexpr Words<ParameterKind, 4> kKinds = {{{"matrix", ParameterKind::matrix},
                                             {"bias", ParameterKind::bias},
                                             {"norm", ParameterKind::norm},
                                             {"embedding", ParameterKind::embedding}}};
constexpr Words<DType, 4> kDTypes = {{{"float32", DType::f32},
                                      {"float64", DType::f64},
                                      {"float16", DType::f16},
                                      {"bfloat16", DType::bf16}}};

// The name of a type object (numpy.float32), of a NumPy dtype, or what torch.float32 prints.
std::string dtype_word(nb::handle dtype) {
  if (nb::isinstance<nb::str>(dtype)) return nb::borrow<nb::str>(dtype).c_str();
  for (const char* attribute : {"name", "__name__"}) {
    const nb::object name = nb::getattr(dtype, attribute, nb::none());
    if (nb::isinstance<nb::str>(name)) return nb::borrow<nb::str>(name).c_str();
  }
  const std::string printed = nb::str(dtype).c_str();
  return printed.substr(printed.rfind('.') + 1);
}

}  // namespace

Engine engine_of(const std::string& word, const char* function) {
  if (word == "auto") return Engine::automatic;
  return engine_named(word, {"\"auto\""}, format_text("{}: engine", function));
}

Engine required_engine(const std::optional<std::string>& word, const char* function) {
  if (!word) return Engine::automatic;
  return engine_named(*word, {}, format_text("{}: require", function));
}

ScoresTap tap_of(const std::optional<std::string>& word) {
  return word ? look_up(*word, kTaps, "attend: return_scores") : ScoresTap::none;
}

DropoutStream stream_of(const std::string& word, const char* function) {
  return look_up(word, kStreams, format_text("{}: dropout_stream", function));
}

Arithmetic arithmetic_of(const std::string& word, const char* function) {
  return look_up(word, kArithmetics, format_text("{}: arithmetic", function));
}

Form form_of(const std::string& word, const char* function) {
  if (word == "fused") return Form::joined;  // its name in 0.1
  return look_up(word, kForms, format_text("{}: form", function));
}

Align align_of(const std::string& word) {
  return look_up(word, kAligns, "positions: align");
}

WordTokenizer::Version version_of(const std::string& word) {
  return look_up(word, kVersions, "WordTokenizer: version");
}

ShuffleOrder order_of(const std::string& word) {
  return look_up(word, kOrders, "Windows: order");
}

Activation activation_of(const std::string& word, const char* function) {
  return value_for<Activation>(word, format_text("{}: activation", function));
}

std::size_t index_of(const std::string& word, std::span<const char* const> words,
                     const std::string& who) {
  std::vector<std::string> known;
  for (const char* each : words) {
    if (word == each) return known.size();
    known.push_back(format_text("\"{}\"", each));
  }
  refuse_word(word, known, who);
}

GptNames names_of(const std::string& word) {
  return look_up(word, kNames, "Gpt: names");
}

const char* word_of(ShuffleOrder order) {
  return word_for(order, kOrders);
}

const char* word_of(ParameterKind kind) {
  return word_for(kind, kKinds);
}

DType dtype_of(nb::handle dtype, const char* function) {
  return look_up(dtype_word(dtype), kDTypes, format_text("{}: dtype", function));
}

}  // namespace cephalo::python
