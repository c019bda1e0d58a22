#include "web/engine/recorded.h"

#include <numeric>
#include <utility>

#include "cephalo/attention/weights.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/format.h"
#include "cephalo/core/views.h"
#include "cephalo/io/json.h"
#include "cephalo/linear/ops.h"
#include "cephalo/mask/mask.h"

namespace cephalo::page {

RecordedPass::RecordedPass(std::span<const std::byte> file)
    : file_(InputFile("recording", file)), sizes_(read_sizes(file_)) {}

RecordedPass::Sizes RecordedPass::read_sizes(const SafetensorsFile& file) {
  const auto found = file.metadata().find("sizes");
  require(found != file.metadata().end(), "page: the recording does not say its sizes");
  const Json json = parse_json(found->second, "page: sizes of the recording");
  const auto size = [&](const char* name) {
    const dim_t value = json.at(name).as_int64();
    require(value > 0, "page: {} of the recording is {}", name, value);
    return value;
  };
  require(size("num_heads") % size("num_kv_heads") == 0,
          "page: {} heads of the recording cannot share {}", size("num_heads"),
          size("num_kv_heads"));
  return {size("tokens"),
          size("num_layers"),
          size("num_heads"),
          size("num_kv_heads"),
          size("head_dim"),
          size("d_model"),
          json.at("rotary_base").as_double(),
          json.at("rotary_interleaved").as_bool()};
}

const SafetensorsFile::Entry* RecordedPass::find(dim_t layer, const std::string& name) const {
  return file_.find(format_text("layers.{}.{}", layer, name));
}

Tensor RecordedPass::read(dim_t layer, const std::string& name, const Shape& shape) const {
  const SafetensorsFile::Entry* entry = find(layer, name);
  require(entry != nullptr, "page: the recording lacks {} of layer {}", name, layer);
  Tensor tensor = Tensor::empty(shape);
  file_.read_into(*entry, tensor);
  return tensor;
}

// q or k of one of its heads, from what the layer was given: -> [tokens, head_dim]
Tensor RecordedPass::made(const char* which, dim_t layer, dim_t heads, dim_t head) const {
  const dim_t dim = sizes_.head_dim;
  const std::string bias_name = format_text("{}_bias", which);
  const bool biased = find(layer, bias_name) != nullptr;
  const Tensor weight = read(layer, format_text("{}_weight", which), {heads * dim, sizes_.d_model});
  const Tensor bias = biased ? read(layer, bias_name, {heads * dim}) : Tensor();
  const auto of_head = [&](const TensorView& rows) {
    return rows.slice(0, head * dim, (head + 1) * dim);
  };
  const PackedLinear packed(of_head(weight), biased ? of_head(bias) : TensorView(), DType::f32);
  Tensor out = Tensor::empty({sizes_.tokens, dim});
  ops::linear(packed, x_, out);
  if (sizes_.rotary_base > 0.0) {
    const MutableTensorView turned(out.mutable_view().mutable_data(), DType::f32,
                                   {1, sizes_.tokens, 1, dim});
    rotate(turned, {sizes_.rotary_interleaved, sizes_.rotary_base}, {0});
  }
  return out;
}

const RecordedPass::Head& RecordedPass::head_of(dim_t layer, dim_t head) {
  require(0 <= layer && layer < sizes_.num_layers, "page: layer {} is not in [0, {})", layer,
          sizes_.num_layers);
  require(0 <= head && head < sizes_.num_heads, "page: head {} is not in [0, {})", head,
          sizes_.num_heads);
  if (layer != layer_) {
    heads_.clear();
    layer_ = -1;  // should a part be missing, nothing is kept
    lse_ = read(layer, "lse", {sizes_.num_heads, sizes_.tokens});
    const bool from_inputs = find(layer, "x") != nullptr;
    x_ = from_inputs ? read(layer, "x", {sizes_.tokens, sizes_.d_model}) : Tensor();
    layer_ = layer;
  }
  const auto known = heads_.find(head);
  if (known != heads_.end()) return known->second;
  const dim_t kv = head / (sizes_.num_heads / sizes_.num_kv_heads);
  const Shape rows{sizes_.tokens, sizes_.head_dim};
  Head found = x_.numel() > 0 ? Head{made("q", layer, sizes_.num_heads, head),
                                     made("k", layer, sizes_.num_kv_heads, kv)}
                              : Head{read(layer, format_text("q.{}", head), rows),
                                     read(layer, format_text("k.{}", kv), rows)};
  return heads_.emplace(head, std::move(found)).first->second;
}

Tensor RecordedPass::weights(dim_t layer, dim_t head, dim_t first_row, dim_t rows) {
  const dim_t begin = head < 0 ? 0 : head;
  const dim_t end = head < 0 ? sizes_.num_heads : head + 1;
  WeightsSelection selection;
  selection.rows.resize(static_cast<std::size_t>(std::max<dim_t>(rows, 0)));
  std::iota(selection.rows.begin(), selection.rows.end(), first_row);
  Tensor all = Tensor::empty({end - begin, std::ssize(selection.rows), sizes_.tokens});
  const Shape one{1, 1, sizes_.tokens, sizes_.head_dim};
  for (dim_t h = begin; h < end; ++h) {
    const Head& made = head_of(layer, h);
    const Tensor found =
        cephalo::weights(view(made.q, one), view(made.k, one), view(lse_[h], {1, 1, sizes_.tokens}),
                         causal(), {}, selection);
    all.mutable_view()[h - begin].copy_from(found[0][0]);
  }
  return all;
}

Tensor RecordedPass::pair(dim_t layer, dim_t head, dim_t query, dim_t key) {
  const Head& made = head_of(layer, head);
  for (const dim_t place : {query, key}) {
    require(0 <= place && place < sizes_.tokens, "page: token {} is not in [0, {})", place,
            sizes_.tokens);
  }
  Tensor both = Tensor::empty({2, sizes_.head_dim});
  both.mutable_view()[0].copy_from(made.q[query]);
  both.mutable_view()[1].copy_from(made.k[key]);
  return both;
}

}  // namespace cephalo::page
