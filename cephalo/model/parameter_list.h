#pragma once

#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "cephalo/core/shape.h"
#include "cephalo/model/gpt_options.h"

#pragma GCC visibility push(default)
namespace cephalo {

// What a parameter is; it decides how a new one is drawn. Weight decay is for matrices that
// multiply. Biases and norms are not a scale to shrink, and rows of an embedding that a batch does
// not hold would fade without having been wrong; that goes for the token embedding when it is the
// output head as well.
enum class ParameterKind { matrix, bias, norm, embedding };
inline bool is_decayed(ParameterKind kind) {
  return kind == ParameterKind::matrix;
}

// Where in a model a parameter is. Each part has a weight, and some have a bias.
enum class ModelPart {
  token_embedding,
  position_embedding,
  norm_1,    // of every block, up to mlp_proj
  qkv_proj,  // queries, keys and values below each other
  out_proj,
  norm_2,
  mlp_fc,
  mlp_proj,
  last_norm,
  head
};
inline constexpr std::size_t kModelParts = 10;

// Does every layer have it?
inline bool is_in_block(ModelPart part) {
  return part >= ModelPart::norm_1 && part <= ModelPart::mlp_proj;
}
// Is it one of the attention layer's?
inline bool is_in_attention(ModelPart part) {
  return part == ModelPart::qkv_proj || part == ModelPart::out_proj;
}

// One parameter of a model, whether that is in memory, in a file or not yet made.
struct ParameterInfo {
  std::string name = {};  // our own; file_names.h has those of files
  ParameterKind kind = ParameterKind::matrix;
  ModelPart part = ModelPart::head;
  dim_t layer = 0;       // of a part of a block
  bool is_bias = false;  // otherwise the weight
  Shape shape = {};      // dense; a matrix is [out, in]
  // Rows of each of the tensors that are stored one below the other in it: those of q, k and v;
  // otherwise one, and all rows.
  std::vector<dim_t> rows = {};
};

// Every parameter of a model once, in the order in which they are drawn, stored and numbered. Made
// one at a time: options may ask for more layers than there is memory for the names of.
class ParameterList {
 public:
  explicit ParameterList(const GptOptions& checked);

  dim_t size() const;   // parameters
  dim_t count() const;  // numbers that they hold together; an error if it overflows
  ParameterInfo operator[](dim_t index) const;

  // Those of the first block: all blocks are the same.
  std::span<const ParameterInfo> block() const { return block_; }
  std::span<const ParameterInfo> before() const { return before_; }  // the first block

  class Iterator {
   public:
    using value_type = ParameterInfo;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    Iterator(const ParameterList* list, dim_t index) : list_(list), index_(index) {}
    ParameterInfo operator*() const { return (*list_)[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    Iterator operator++(int) {
      const Iterator before = *this;
      ++index_;
      return before;
    }
    bool operator==(const Iterator&) const = default;

   private:
    const ParameterList* list_ = nullptr;
    dim_t index_ = 0;
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

 private:
  dim_t num_layers_;
  std::vector<ParameterInfo> before_, block_, after_;
};

// The description that count, memory, files, gradients and Python follow from; options are checked.
ParameterList parameter_list(const GptOptions& options);

// How many numbers such a model learns, without making it; options are checked.
dim_t parameter_count(const GptOptions& options);

}  // namespace cephalo
#pragma GCC visibility pop
