#include "cephalo/model/parameter_list.h"

#include "cephalo/model/file_names.h"

namespace cephalo {
namespace {

using Infos = std::vector<ParameterInfo>;

void add_embedding(Infos& to, ModelPart part, dim_t rows, dim_t width) {
  to.push_back(
      {.kind = ParameterKind::embedding, .part = part, .shape = {rows, width}, .rows = {rows}});
}

void add_norm(Infos& to, ModelPart part, dim_t width) {
  for (const bool is_bias : {false, true}) {
    to.push_back({.kind = ParameterKind::norm,
                  .part = part,
                  .is_bias = is_bias,
                  .shape = {width},
                  .rows = {width}});
  }
}

// rows: of the matrices below each other, which multiply the same input
void add_linear(Infos& to, ModelPart part, const std::vector<dim_t>& rows, dim_t in, bool bias) {
  dim_t out = 0;
  for (const dim_t each : rows) out = checked_add(out, each);
  to.push_back({.kind = ParameterKind::matrix, .part = part, .shape = {out, in}, .rows = rows});
  if (!bias) return;
  to.push_back(
      {.kind = ParameterKind::bias, .part = part, .is_bias = true, .shape = {out}, .rows = rows});
}

dim_t numbers_in(const Infos& infos) {
  dim_t sum = 0;
  for (const ParameterInfo& p : infos) {
    const dim_t columns = p.shape.rank() == 2 ? p.shape[1] : 1;
    sum = checked_add(sum, checked_mul(p.shape[0], columns));
  }
  return sum;
}

}  // namespace

ParameterList::ParameterList(const GptOptions& o) : num_layers_(o.num_layers) {
  const dim_t d = o.d_model;
  add_embedding(before_, ModelPart::token_embedding, o.vocab_size, d);
  if (o.positions == PositionKind::learned) {
    add_embedding(before_, ModelPart::position_embedding, o.context_length, d);
  }
  add_norm(block_, ModelPart::norm_1, d);
  add_linear(block_, ModelPart::qkv_proj, {d, o.kv_width(), o.kv_width()}, d, o.qkv_bias);
  add_linear(block_, ModelPart::out_proj, {d}, d, true);
  add_norm(block_, ModelPart::norm_2, d);
  add_linear(block_, ModelPart::mlp_fc, {o.d_mlp}, d, true);
  add_linear(block_, ModelPart::mlp_proj, {d}, o.d_mlp, true);
  add_norm(after_, ModelPart::last_norm, d);
  if (!o.tied_head) add_linear(after_, ModelPart::head, {o.vocab_size}, d, false);
}

dim_t ParameterList::size() const {
  return std::ssize(before_) + checked_mul(num_layers_, std::ssize(block_)) + std::ssize(after_);
}

dim_t ParameterList::count() const {
  const dim_t blocks = checked_mul(num_layers_, numbers_in(block_));
  return checked_add(checked_add(numbers_in(before_), blocks), numbers_in(after_));
}

ParameterInfo ParameterList::operator[](dim_t index) const {
  const dim_t in_blocks = index - std::ssize(before_);
  const dim_t after = in_blocks - num_layers_ * std::ssize(block_);
  ParameterInfo info;
  if (in_blocks < 0) {
    info = before_[static_cast<std::size_t>(index)];
  } else if (after < 0) {
    info = block_[static_cast<std::size_t>(in_blocks % std::ssize(block_))];
    info.layer = in_blocks / std::ssize(block_);
  } else {
    info = after_[static_cast<std::size_t>(after)];
  }
  info.name = own_name(info.part, info.layer, info.is_bias);
  return info;
}

ParameterList parameter_list(const GptOptions& options) {
  return ParameterList(checked_options(options, "parameter_list"));
}

dim_t parameter_count(const GptOptions& options) {
  return ParameterList(checked_options(options, "parameter_count")).count();
}

}  // namespace cephalo
