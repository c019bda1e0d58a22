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

Tensor RecordedPass::read(dim_t layer, const std::string& name) const {
  const SafetensorsFile::Entry* entry = find(layer, name);
  require(entry != nullptr, "page: the recording lacks {} of layer {}", name, layer);
  return file_.read(*entry);
}

// q or k of one head, from what the layer was given: -> [tokens, head_dim]
Tensor RecordedPass::made(const char* which, dim_t layer, dim_t head) const {
  const dim_t dim = sizes_.head_dim;
  const Tensor weight = read(layer, format_text("{}_weight", which));
  const SafetensorsFile::Entry* bias = find(layer, format_text("{}_bias", which));
  const Tensor all_bias = bias == nullptr ? Tensor() : file_.read(*bias);
  const auto of_head = [&](const TensorView& rows) {
    return rows.slice(0, head * dim, (head + 1) * dim);
  };
  const PackedLinear packed(of_head(weight), bias == nullptr ? TensorView() : of_head(all_bias),
                            DType::f32);
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
    lse_ = read(layer, "lse");
    x_ = find(layer, "x") == nullptr ? Tensor() : read(layer, "x");
    layer_ = layer;
  }
  const auto known = heads_.find(head);
  if (known != heads_.end()) return known->second;
  const dim_t kv = head / (sizes_.num_heads / sizes_.num_kv_heads);
  if (x_.numel() > 0) {
    return heads_.emplace(head, Head{made("q", layer, head), made("k", layer, kv)}).first->second;
  }
  return heads_
      .emplace(head,
               Head{read(layer, format_text("q.{}", head)), read(layer, format_text("k.{}", kv))})
      .first->second;
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
