#include "cephalo/view/recorded_file.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "cephalo/core/format.h"
#include "cephalo/core/views.h"
#include "cephalo/io/json_value.h"
#include "cephalo/io/safetensors.h"

namespace cephalo {
namespace {

constexpr std::int64_t kFloat = 4;
constexpr std::int64_t kHeaderBytes = 96;  // of one tensor, about
constexpr dim_t kBlockRows = 128;          // of weights that are there at a time

dim_t cells_of(dim_t tokens) {
  return std::min(kRecordedCells, tokens);
}

dim_t kv_head(const GptOptions& o, dim_t head) {
  return head / (o.num_heads / o.num_kv_heads);
}

bool is_full(const RecordedPlan& plan, dim_t layer, dim_t head) {
  if (plan.form != RecordedForm::partly) return true;
  return std::any_of(plan.full.begin(), plan.full.end(), [&](const HeadPlace& place) {
    return place.layer == layer && place.head == head;
  });
}

// [out, in] -> bfloat16 where every element has one, else float32: as small as it was stored.
Tensor as_small_as_exact(const TensorView& weight) {
  Tensor wide = Tensor::copy(weight, DType::f32);
  Tensor narrow = Tensor::copy(wide, DType::bf16);
  const Tensor again = Tensor::copy(narrow, DType::f32);
  const auto* a = wide.data_as<float>();
  const auto* b = again.data_as<float>();
  return std::equal(a, a + wide.numel(), b) ? std::move(narrow) : std::move(wide);
}

// Tensors under their names, kept until they are written.
class Parts {
 public:
  explicit Parts(const Recording& recording, const RecordedPlan& plan)
      : recording_(recording), plan_(plan), o_(recording.model().options()) {}

  std::string bytes() {
    if (plan_.form == RecordedForm::inputs) add_inputs();
    for (dim_t layer = 0; layer < o_.num_layers; ++layer) add_layer(layer);
    if (plan_.pooled) {
      add_tiles();
      add_last_rows();
    }
    std::vector<std::pair<std::string, TensorView>> views;
    for (const auto& [name, tensor] : parts_) views.emplace_back(name, tensor);
    return safetensors_bytes("recording", views, {{"sizes", sizes().dump()}});
  }

 private:
  Json sizes() const {
    const bool rotary = o_.positions == PositionKind::rotary;
    return {{"tokens", recording_.tokens()},
            {"num_layers", o_.num_layers},
            {"num_heads", o_.num_heads},
            {"num_kv_heads", o_.num_kv_heads},
            {"head_dim", o_.head_dim()},
            {"d_model", o_.d_model},
            // 0: no rotary
            {"rotary_base", rotary ? o_.rotary.base : 0.0},
            {"rotary_interleaved", o_.rotary.interleaved}};
  }

  void add(std::string name, Tensor tensor) {
    parts_.emplace_back(std::move(name), std::move(tensor));
  }
  void add(dim_t layer, const std::string& name, Tensor tensor) {
    add(format_text("layers.{}.{}", layer, name), std::move(tensor));
  }

  // A recording keeps q and k; what they were made from comes by in another pass, of the same bits.
  void add_inputs() {
    const auto keep = [&](dim_t layer, const TensorView& x) {
      add(layer, "x", Tensor::copy(x[0], DType::f32));
    };
    recording_.model()(TensorView(recording_.ids().data(), {1, recording_.tokens()}),
                       {.last_only = true, .on_attention = keep});
    for (dim_t layer = 0; layer < o_.num_layers; ++layer) {
      const MultiHeadAttention& attention = recording_.model().attention(layer);
      const auto add_rows = [&](const char* name, dim_t begin, dim_t end) {
        const TensorView weight = attention.parameter("qkv_proj.weight").slice(0, begin, end);
        add(layer, format_text("{}_weight", name), as_small_as_exact(weight));
        if (!o_.qkv_bias) return;
        const TensorView bias = attention.parameter("qkv_proj.bias").slice(0, begin, end);
        add(layer, format_text("{}_bias", name), Tensor::copy(bias, DType::f32));
      };
      add_rows("q", 0, o_.d_model);
      add_rows("k", o_.d_model, o_.d_model + o_.kv_width());
    }
  }

  void add_layer(dim_t layer) {
    const PassHeads heads = recording_.heads(layer);
    std::set<dim_t> keys;  // kv heads that are kept already
    for (dim_t head = 0; head < o_.num_heads && plan_.form != RecordedForm::inputs; ++head) {
      if (!is_full(plan_, layer, head)) {
        add_strongest(layer, head);
        continue;
      }
      add(layer, format_text("q.{}", head), Tensor::copy(heads.q[0][head], DType::f32));
      const dim_t kv = kv_head(o_, head);
      if (!keys.insert(kv).second) continue;
      add(layer, format_text("k.{}", kv), Tensor::copy(heads.k[0][kv], DType::f32));
    }
    add(layer, "lse", Tensor::copy(heads.lse[0], DType::f32));
    add(layer, "norms", Tensor::copy(recording_.value_norms(layer), DType::f32));
  }

  void add_strongest(dim_t layer, dim_t head) {
    const dim_t tokens = recording_.tokens();
    Tensor keys = Tensor::full({tokens, kStrongestKeys}, -1, DType::i32);
    Tensor top = Tensor::full({tokens, kStrongestKeys}, 0.0);
    auto* key = keys.mutable_data_as<std::int32_t>();
    auto* weight = top.mutable_data_as<float>();
    std::vector<std::int32_t> order(static_cast<std::size_t>(tokens));
    for (dim_t begin = 0; begin < tokens; begin += kBlockRows) {
      WeightsSelection rows{.heads = {head}};
      for (dim_t i = begin; i < std::min(begin + kBlockRows, tokens); ++i) rows.rows.push_back(i);
      const Tensor weights = Tensor::copy(recording_.weights(layer, rows), DType::f32);
      const auto* row = weights.data_as<float>();
      for (const dim_t i : rows.rows) {
        const auto seen = order.begin() + i + 1;
        const auto kept = order.begin() + std::min(i + 1, kStrongestKeys);
        std::iota(order.begin(), seen, 0);
        std::partial_sort(order.begin(), kept, seen, [&](std::int32_t a, std::int32_t b) {
          return row[a] > row[b] || (row[a] == row[b] && a < b);
        });
        for (auto at = order.begin(); at != kept; ++at) {
          key[i * kStrongestKeys + (at - order.begin())] = *at;
          weight[i * kStrongestKeys + (at - order.begin())] = row[*at];
        }
        row += tokens;
      }
    }
    add(layer, format_text("keys.{}", head), std::move(keys));
    add(layer, format_text("top.{}", head), std::move(top));
  }

  // Square roots, so that 8 bits tell small weights apart: most are small in a long text.
  void add_tiles() {
    const dim_t cells = cells_of(recording_.tokens());
    Tensor tiles = Tensor::empty({o_.num_layers, o_.num_heads, cells * (cells + 1) / 2}, DType::u8);
    auto* to = tiles.mutable_data_as<std::uint8_t>();
    for (dim_t layer = 0; layer < o_.num_layers; ++layer) {
      for (dim_t head = 0; head < o_.num_heads; ++head) {
        const Tensor map = Tensor::copy(recording_.pooled(layer, head, cells).largest, DType::f32);
        const auto* row = map.data_as<float>();
        for (dim_t y = 0; y < cells; ++y, row += cells) {
          for (dim_t x = 0; x <= y; ++x) {
            const float root = std::sqrt(std::clamp(row[x], 0.0F, 1.0F));
            *to++ = static_cast<std::uint8_t>(std::lround(255.0F * root));
          }
        }
      }
    }
    add("tiles", std::move(tiles));
  }

  void add_last_rows() {
    const dim_t tokens = recording_.tokens();
    Tensor last = Tensor::empty({o_.num_layers, o_.num_heads, tokens});
    for (dim_t layer = 0; layer < o_.num_layers; ++layer) {
      const Tensor rows = recording_.weights(layer, {.rows = {tokens - 1}});
      last.mutable_view()[layer].copy_from(view(rows, {o_.num_heads, tokens}));
    }
    add("last", std::move(last));
  }

  const Recording& recording_;
  const RecordedPlan& plan_;
  const GptOptions& o_;
  std::vector<std::pair<std::string, Tensor>> parts_;
};

std::int64_t inputs_bytes(const Recording& recording) {
  const GptOptions& o = recording.model().options();
  std::int64_t bytes = 0;
  for (dim_t layer = 0; layer < o.num_layers; ++layer) {
    const TensorView qkv = recording.model().attention(layer).parameter("qkv_proj.weight");
    const dim_t width = o.d_model + o.kv_width();
    // As bytes(): q and k are judged apart.
    bytes += static_cast<std::int64_t>(as_small_as_exact(qkv.slice(0, 0, o.d_model)).bytes() +
                                       as_small_as_exact(qkv.slice(0, o.d_model, width)).bytes());
    bytes += recording.tokens() * o.d_model * kFloat + (o.qkv_bias ? width * kFloat : 0) +
             5 * kHeaderBytes;
  }
  return bytes;
}

std::int64_t heads_bytes(const Recording& recording, const RecordedPlan& plan) {
  const GptOptions& o = recording.model().options();
  const std::int64_t head = recording.tokens() * o.head_dim() * kFloat + kHeaderBytes;
  const std::int64_t strongest =
      recording.tokens() * kStrongestKeys * 2 * kFloat + 2 * kHeaderBytes;
  std::int64_t bytes = 0;
  for (dim_t layer = 0; layer < o.num_layers; ++layer) {
    std::set<dim_t> keys;
    for (dim_t h = 0; h < o.num_heads; ++h) {
      if (is_full(plan, layer, h)) {
        bytes += head + (keys.insert(kv_head(o, h)).second ? head : 0);
      } else {
        bytes += strongest;
      }
    }
  }
  return bytes;
}

}  // namespace

std::string recorded_file(const Recording& recording, const RecordedPlan& plan) {
  return Parts(recording, plan).bytes();
}

std::int64_t recorded_file_bytes(const Recording& recording, const RecordedPlan& plan) {
  const GptOptions& o = recording.model().options();
  const dim_t cells = cells_of(recording.tokens());
  const std::int64_t rows = o.num_layers * o.num_heads * recording.tokens() * kFloat;
  const std::int64_t tiles = o.num_layers * o.num_heads * cells * (cells + 1) / 2;
  const std::int64_t heads =
      plan.form == RecordedForm::inputs ? inputs_bytes(recording) : heads_bytes(recording, plan);
  return heads + 2 * (rows + o.num_layers * kHeaderBytes) + (plan.pooled ? tiles + rows : 0);
}

}  // namespace cephalo
