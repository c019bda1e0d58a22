#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "cephalo/model/parameter_list.h"

// What files call the parameters of a model; not for users of the library.
namespace cephalo {

// Somebody's habit of naming and storing parameters. A name is
//   root + block + layer + "." + part + "." + weight       "transformer.h.0.ln_1.weight"
// with block and layer in a block alone, and without root for the head, which is not inside of what
// the root names.
struct FileNames {
  const char* root;
  const char* block;
  // Of each ModelPart; several: the tensors of ParameterInfo::rows, each under a name of its own.
  struct Part {
    const char* names[3];
  };
  std::array<Part, kModelParts> parts;
  const char* norm_weight;
  const char* norm_bias;
  bool transposed;   // matrices of blocks are stored in × out
  bool always_head;  // there is a head even where it is the token embedding
  // How names of tensors end that are no parameters: masks that PyTorch's classes register.
  std::array<const char*, 2> buffers;
};

extern const FileNames kGpt2Names;      // Hugging Face's GPT-2
extern const FileNames kBareGpt2Names;  // the same without "transformer."
extern const FileNames kBookNames;

// In the order in which a file is tried for them.
std::span<const FileNames* const> all_file_names();

// Where a parameter is in a file.
struct FilePlace {
  std::vector<std::string> names;
  std::vector<dim_t> rows;  // for each name
  bool transposed = false;
};
FilePlace place_in(const FileNames& names, const ParameterInfo& parameter);

// The name of a whole part's weight or bias.
std::string file_name(const FileNames& names, ModelPart part, dim_t layer = 0,
                      bool is_bias = false);
bool is_buffer(const std::string& name);  // under anybody's names

// Our own names are those that a Hugging Face GPT-2 file has.
std::string own_name(ModelPart part, dim_t layer = 0, bool is_bias = false);

}  // namespace cephalo
