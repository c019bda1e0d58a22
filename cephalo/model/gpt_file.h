#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cephalo/io/safetensors.h"
#include "cephalo/model/gpt.h"
#include "cephalo/model/gpt_config.h"

#pragma GCC visibility push(default)
namespace cephalo {

// A model's folder: config.json and model.safetensors, or model.safetensors.index.json with its
// shards. Parameters of any floating type, named as Hugging Face's GPT-2 (with or without
// "transformer.") or as the book does (tok_emb, trf_blocks.N.att.W_query …, out_head).
struct LoadGptOptions {
  bool allow_extra = false;  // tensors and keys that the model has no place for
  bool strict = false;       // NaN or infinity in a parameter is an error, not a warning
  DType dtype = DType::f32;  // of the model, whatever the file has; or f64
  // Called after every parameter: bytes read so far, of all.
  std::function<void(std::int64_t done, std::int64_t all)> progress = {};
};

// A model, and what config.json says beyond its sizes.
struct LoadedGpt {
  Gpt model;
  GptConfig config;
};

// Names and shapes of the whole file are compared with config.json before anything is allocated.
LoadedGpt load_gpt(const std::string& folder, const LoadGptOptions& options = {},
                   std::vector<std::string>* warnings = nullptr);

// What load_gpt would make of a folder, without reading a number: config.json, with the names and
// shapes of the file compared with it. An error where load_gpt would refuse.
GptConfig inspect_gpt(const std::string& folder, const LoadGptOptions& options = {});
std::string gpt_parameters_path(const std::string& folder);  // the file, or the index of several
bool is_gpt_file(const SafetensorsFile& file);  // does it hold a token embedding by any known name?

// load_gpt from the contents of config.json and of model.safetensors; messages call them by `name`
// and these.
LoadedGpt load_gpt(const std::string& name, const std::string& config_json,
                   std::span<const std::byte> parameters, const LoadGptOptions& options = {},
                   std::vector<std::string>* warnings = nullptr);

// Whose names parameters have in a file.
enum class GptNames { hugging_face, book };

// How to write a model to a folder.
struct SaveGptOptions {
  GptNames names = GptNames::hugging_face;
  DType dtype = DType::f32;      // of the file; also bf16, f16 and f64
  bool replace = false;          // what already exists
  std::int64_t shard_bytes = 0;  // 0: one file; otherwise several of about this size, and an index
  std::optional<dim_t> bos_token_id = {};
  std::optional<dim_t> eos_token_id = {};
  bool add_bos_token = false;  // texts are to begin with bos_token_id
  // Another than the model's, of rotary positions alone, which have no table. One that is longer
  // makes the model's own its trained_context_length, unless that is said here.
  std::optional<dim_t> context_length = {};
  std::optional<dim_t> trained_context_length = {};
};

// Writes config.json and the parameters into a folder, which is created if needed. Every file is
// written whole or not at all; config.json comes last.
void save_gpt(const Gpt& model, const std::string& folder, const SaveGptOptions& options = {});

}  // namespace cephalo
#pragma GCC visibility pop
