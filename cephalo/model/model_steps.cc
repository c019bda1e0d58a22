#include "cephalo/model/model_steps.h"

#include "cephalo/attention/layer/fused_layer.h"
#include "cephalo/attention/layer/row_rotation.h"
#include "cephalo/linear/ops.h"
#include "cephalo/model/gpt_layers.h"

namespace cephalo {
namespace {

const Block& block_of(const GptLayers& parts, dim_t layer) {
  return parts.blocks[static_cast<std::size_t>(layer)];
}

Gelu form_of(Activation activation) {
  return activation == Activation::gelu_erf ? Gelu::erf : Gelu::tanh;
}

}  // namespace

ModelSteps::ModelSteps(const Gpt& model) : model_(&model), parts_(&layers_of(model)) {
  const DType steps = parts_->options.dtype;
  for (const Block& block : parts_->blocks) {
    const MultiHeadAttention& a = block.attention;
    const TensorView bias = parts_->options.qkv_bias ? a.parameter("qkv_proj.bias") : TensorView();
    layers_.push_back(
        {PackedLinear(a.parameter("qkv_proj.weight"), bias, steps),
         PackedLinear(a.parameter("out_proj.weight"), a.parameter("out_proj.bias"), steps),
         PackedLinear(a.parameter("out_proj.weight"), {}, steps), block.mlp.pack()});
  }
  head_.emplace(parts_->head_weight(), TensorView(), steps);
}

const GptOptions& ModelSteps::options() const {
  return parts_->options;
}

dim_t ModelSteps::qkv_width() const {
  return options().d_model + 2 * options().kv_width();
}

void ModelSteps::embed(const TensorView& ids, dim_t first, const MutableTensorView& x) const {
  embed_into(parts_->tables(), ids, first, x);
}

void ModelSteps::embed_apart(const TensorView& ids, dim_t first, const MutableTensorView& token,
                             const MutableTensorView& position) const {
  embed_into({parts_->token, {}}, ids, first, token);
  if (!has_position_embedding()) return;
  for (dim_t b = 0; b < ids.dim(0); ++b) {
    const dim_t tokens = ids.dim(1);
    ops::copy(parts_->position.slice(0, first, first + tokens),
              position.slice(0, b * tokens, (b + 1) * tokens));
  }
}

bool ModelSteps::has_position_embedding() const {
  return options().positions == PositionKind::learned;
}

void ModelSteps::norm_1(dim_t layer, const Normed& rows) const {
  block_of(*parts_, layer).norm_1.forward_into({rows.x, rows.added, rows.y, rows.moments});
}

void ModelSteps::norm_2(dim_t layer, const Normed& rows) const {
  block_of(*parts_, layer).norm_2.forward_into({rows.x, rows.added, rows.y, rows.moments});
}

void ModelSteps::last_norm(const Normed& rows) const {
  parts_->norm.forward_into({rows.x, rows.added, rows.y, rows.moments});
}

void ModelSteps::project(dim_t layer, const TensorView& normed,
                         const MutableTensorView& qkv) const {
  ops::linear(layers_[static_cast<std::size_t>(layer)].qkv, normed, qkv);
}

QkvHeads ModelSteps::heads(const MutableTensorView& qkv, const StepRows& rows) const {
  const GptOptions& o = options();
  const dim_t dim = o.head_dim();
  return {heads_of(qkv, rows.batch, 0, o.num_heads, dim),
          heads_of(qkv, rows.batch, o.d_model, o.num_kv_heads, dim),
          heads_of(qkv, rows.batch, o.d_model + o.kv_width(), o.num_kv_heads, dim)};
}

namespace {

std::optional<RowRotation> rotation_of(const GptOptions& o, const QkvHeads& heads,
                                       const StepRows& rows) {
  if (o.positions != PositionKind::rotary) return std::nullopt;
  const std::vector<dim_t> shift(static_cast<std::size_t>(rows.batch), rows.first);
  RowRotation rotation(o.rotary, o.head_dim());
  rotation.add({heads.q, shift});
  rotation.add({heads.k, shift});
  rotation.build_table();
  return rotation;
}

}  // namespace

void ModelSteps::rotate(const QkvHeads& heads, const StepRows& rows) const {
  const std::optional<RowRotation> rotation = rotation_of(options(), heads, rows);
  if (rotation) ops::rotate(rotation->rotation());
}

void ModelSteps::project_rotated(dim_t layer, const TensorView& normed,
                                 const MutableTensorView& qkv, const StepRows& rows) const {
  const std::optional<RowRotation> rotation = rotation_of(options(), heads(qkv, rows), rows);
  if (!rotation) return project(layer, normed, qkv);
  const Rotation turn = rotation->rotation();
  ops::linear(layers_[static_cast<std::size_t>(layer)].qkv, normed, qkv, Epilogue::rotate(turn));
}

void ModelSteps::attend(const TensorView& q, const TensorView& k, const TensorView& v,
                        const MutableTensorView& context, const MutableTensorView& lse) const {
  const MutableTensorView merged =
      heads_of(context, q.dim(0), 0, options().num_heads, options().head_dim());
  attend_into({merged, lse}, q, k, v, causal());
}

void ModelSteps::project_out(dim_t layer, const TensorView& context,
                             const MutableTensorView& y) const {
  ops::linear(layers_[static_cast<std::size_t>(layer)].out, context, y);
}

void ModelSteps::add_projected(dim_t layer, const TensorView& dcontext,
                               const MutableTensorView& x) const {
  ops::linear(layers_[static_cast<std::size_t>(layer)].out_no_bias, dcontext, x, Epilogue::add());
}

TensorView ModelSteps::out_weight(dim_t layer) const {
  return block_of(*parts_, layer).attention.parameter("out_proj.weight");
}

TensorView ModelSteps::out_bias(dim_t layer) const {
  return block_of(*parts_, layer).attention.parameter("out_proj.bias");
}

void ModelSteps::mlp(dim_t layer, const TensorView& normed, const MutableTensorView& hidden,
                     const MutableTensorView& active, const MutableTensorView& y) const {
  mlp_hidden(layer, normed, hidden, active);
  mlp_out(layer, active, y);
}

void ModelSteps::mlp_hidden(dim_t layer, const TensorView& normed, const MutableTensorView& hidden,
                            const MutableTensorView& active) const {
  const Gelu form = form_of(block_of(*parts_, layer).mlp.activation);
  ops::linear(layers_[static_cast<std::size_t>(layer)].mlp.fc, normed, hidden,
              Epilogue::gelu(form, active));
}

void ModelSteps::activate(dim_t layer, const MutableTensorView& hidden,
                          const MutableTensorView& active) const {
  const Gelu form = form_of(block_of(*parts_, layer).mlp.activation);
  finish_rows(Epilogue::gelu(form, active), hidden, 0, hidden.dim(0));
}

void ModelSteps::mlp_out(dim_t layer, const TensorView& active, const MutableTensorView& y) const {
  ops::linear(layers_[static_cast<std::size_t>(layer)].mlp.proj, active, y);
}

void ModelSteps::logits(const TensorView& normed, const MutableTensorView& logits) const {
  ops::linear(*head_, normed, logits);
}

TensorView ModelSteps::head_weight() const {
  return parts_->head_weight();
}

TensorView ModelSteps::last_norm_weight() const {
  return parts_->norm.weight;
}

TensorView ModelSteps::last_norm_bias() const {
  return parts_->norm.bias;
}

}  // namespace cephalo
