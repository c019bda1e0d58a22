#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "cephalo/model/gpt_options.h"

namespace cephalo::python {

// The arguments of Gpt(...): sizes that are always said may be positional, all others are keywords.
// What was used is taken out of `keywords`; a TypeError names what is missing or of another type.
GptOptions options_from(const nanobind::args& positional, nanobind::dict& keywords);

// The parameters of that signature, with types and defaults: "vocab_size: int, …, *, d_mlp: int =
// 0".
std::string options_signature();

std::string option_names();  // "vocab_size, context_length, …"

// Arguments that make the same model again.
nanobind::dict options_dict(const GptOptions& options);

// Those that are given, in place of the ones that are there.
void change_options(GptOptions& options, const nanobind::dict& given, const char* function);

// "vocab_size=61, …, positions='rotary'": sizes, positions, and what is not as it would be unsaid.
std::string options_text(const GptOptions& checked);

// Each option as a property.
struct Model;
void bind_options(nanobind::class_<Model>& model);

}  // namespace cephalo::python
