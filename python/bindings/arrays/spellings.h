#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <span>
#include <string>

#include "cephalo/attention/attend.h"
#include "cephalo/attention/layer/parameters.h"
#include "cephalo/model/gpt_file.h"
#include "cephalo/text/windows.h"
#include "cephalo/text/words.h"

namespace cephalo::python {

// Words of Python for what is an enumeration in C++; a ValueError lists the words there are.
Engine engine_of(const std::string& word, const char* function);
Engine required_engine(const std::optional<std::string>& word, const char* function);
ScoresTap tap_of(const std::optional<std::string>& word);
DropoutStream stream_of(const std::string& word, const char* function);
Arithmetic arithmetic_of(const std::string& word, const char* function);
Form form_of(const std::string& word, const char* function);
Align align_of(const std::string& word);
WordTokenizer::Version version_of(const std::string& word);
ShuffleOrder order_of(const std::string& word);
Activation activation_of(const std::string& word, const char* function);
GptNames names_of(const std::string& word);

// Of the words that the library has for an option, the value: words_of in model/gpt_options.h.
std::size_t index_of(const std::string& word, std::span<const char* const> words,
                     const std::string& who);
template <HasWords Value>
Value value_for(const std::string& word, const std::string& who) {
  return static_cast<Value>(index_of(word, words_of(Value{}), who));
}

// And back.
const char* word_of(ShuffleOrder order);
const char* word_of(ParameterKind kind);

// "bfloat16", numpy.float32, numpy.dtype("float32") or torch.float32.
DType dtype_of(nanobind::handle dtype, const char* function);

}  // namespace cephalo::python
