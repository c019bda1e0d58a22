#include "cephalo/model/model_steps.h"

#include <initializer_list>

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

// Rows [begin, end) of a layer's q, k and v.
PackedLinear pack_qkv(const MultiHeadAttention& attention, const GptOptions& o, dim_t begin,
                      dim_t end) {
  const TensorView weight = attention.parameter("qkv_proj.weight").slice(0, begin, end);
  if (!o.qkv_bias) return {weight, {}, o.dtype};
  return {weight, attention.parameter("qkv_proj.bias").slice(0, begin, end), o.dtype};
}

std::vector<PackedLinear> pack_heads(const TensorView& out_weight, const GptOptions& o) {
  std::vector<PackedLinear> heads;
  for (dim_t h = 0; h < o.num_heads; ++h) {
    heads.emplace_back(out_weight.slice(1, h * o.head_dim(), (h + 1) * o.head_dim()), TensorView(),
                       o.dtype);
  }
  return heads;
}

}  // namespace

ModelSteps::ModelSteps(const Gpt& model) : model_(&model), parts_(&layers_of(model)) {
  const GptOptions& o = parts_->options;
  for (const Block& block : parts_->blocks) {
    const MultiHeadAttention& a = block.attention;
    const TensorView out = a.parameter("out_proj.weight");
    layers_.push_back({pack_qkv(a, o, 0, qkv_width()),
                       PackedLinear(out, a.parameter("out_proj.bias"), o.dtype), pack_heads(out, o),
                       block.mlp.pack()});
  }
  const MultiHeadAttention& last = parts_->blocks.back().attention;
  last_q_.emplace(pack_qkv(last, o, 0, o.d_model));
  last_kv_.emplace(pack_qkv(last, o, o.d_model, qkv_width()));
  head_.emplace(parts_->head_weight(), TensorView(), o.dtype);
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

MutableTensorView ModelSteps::query_heads(const MutableTensorView& rows, dim_t batch) const {
  return heads_of(rows, batch, 0, options().num_heads, options().head_dim());
}

KvHeads ModelSteps::kv_heads(const MutableTensorView& rows, dim_t batch) const {
  const GptOptions& o = options();
  return {heads_of(rows, batch, 0, o.num_kv_heads, o.head_dim()),
          heads_of(rows, batch, o.kv_width(), o.num_kv_heads, o.head_dim())};
}

namespace {

std::optional<RowRotation> rotation_of(const GptOptions& o,
                                       std::initializer_list<MutableTensorView> heads,
                                       const StepRows& rows) {
  if (o.positions != PositionKind::rotary) return std::nullopt;
  RowRotation rotation(o.rotary, o.head_dim());
  for (const MutableTensorView& each : heads) {
    rotation.add({each, std::vector<dim_t>(static_cast<std::size_t>(rows.batch), rows.first)});
  }
  rotation.build_table();
  return rotation;
}

}  // namespace

void ModelSteps::rotate(const QkvHeads& heads, const StepRows& rows) const {
  const std::optional<RowRotation> rotation = rotation_of(options(), {heads.q, heads.k}, rows);
  if (rotation) ops::rotate(rotation->rotation());
}

void ModelSteps::rotate(const MutableTensorView& heads, const StepRows& rows) const {
  const std::optional<RowRotation> rotation = rotation_of(options(), {heads}, rows);
  if (rotation) ops::rotate(rotation->rotation());
}

void ModelSteps::project_rotated(dim_t layer, const TensorView& normed,
                                 const MutableTensorView& qkv, const StepRows& rows) const {
  const QkvHeads turned = heads(qkv, rows);
  const std::optional<RowRotation> rotation = rotation_of(options(), {turned.q, turned.k}, rows);
  if (!rotation) return project(layer, normed, qkv);
  const Rotation turn = rotation->rotation();
  ops::linear(layers_[static_cast<std::size_t>(layer)].qkv, normed, qkv, Epilogue::rotate(turn));
}

void ModelSteps::project_last_kv(const TensorView& normed, const MutableTensorView& kv) const {
  ops::linear(*last_kv_, normed, kv);
}

void ModelSteps::project_last_q(const TensorView& normed, const MutableTensorView& q) const {
  ops::linear(*last_q_, normed, q);
}

void ModelSteps::attend(const TensorView& q, const TensorView& k, const TensorView& v,
                        const MutableTensorView& context, const MutableTensorView& lse) const {
  attend_into({query_heads(context, q.dim(0)), lse}, q, k, v, causal());
}

void ModelSteps::project_out(dim_t layer, const TensorView& context,
                             const MutableTensorView& y) const {
  ops::linear(layers_[static_cast<std::size_t>(layer)].out, context, y);
}

void ModelSteps::add_projected(dim_t layer, dim_t head, const TensorView& dcontext,
                               const MutableTensorView& x) const {
  const Layer& parts = layers_[static_cast<std::size_t>(layer)];
  ops::linear(parts.heads[static_cast<std::size_t>(head)], dcontext, x, Epilogue::add());
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
