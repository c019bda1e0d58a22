#include "tests/support/mask_spec.h"

#include <cmath>
#include <limits>
#include <memory>
#include <stdexcept>

#include "cephalo/core/random.h"

namespace cephalo::testing {
namespace {

dim_t below(TorchGenerator& generator, dim_t limit) {
  return limit <= 0 ? 0 : generator.randint(0, limit);
}

// A random bool or int tensor of one of the shapes that broadcast to [batch, heads, q, k].
std::shared_ptr<const Tensor> random_flags(const MaskExtent& e, TorchGenerator& generator) {
  const Shape shapes[] = {{e.q_tokens, e.kv_tokens},
                          {e.num_heads, e.q_tokens, e.kv_tokens},
                          {1, e.q_tokens, 1},
                          {e.batch, 1, 1, e.kv_tokens},
                          {e.batch, e.num_heads, e.q_tokens, e.kv_tokens}};
  const DType types[] = {DType::boolean, DType::u8, DType::i32, DType::i64};
  const Shape& shape = shapes[generator.randint(0, 5)];
  const DType dtype = types[generator.randint(0, 4)];
  const Tensor draws = generator.rand(shape);
  Tensor flags = Tensor::empty(shape, dtype);
  Tensor bits = Tensor::empty(shape, DType::i32);
  for (dim_t k = 0; k < draws.numel(); ++k) {
    bits.mutable_data_as<std::int32_t>()[k] = draws.data_as<float>()[k] < 0.7F ? 1 : 0;
  }
  flags.mutable_view().copy_from(bits);
  return std::make_shared<const Tensor>(std::move(flags));
}

double flag_at(const Tensor& t, const MaskSpec::Pair& pair) {
  const dim_t full[] = {pair.b, pair.h, pair.i, pair.j};
  Dims index;
  for (int axis = 0; axis < t.rank(); ++axis) {
    const dim_t wanted = full[4 - t.rank() + axis];
    index.push_back(t.dim(axis) == 1 ? 0 : wanted);
  }
  return t.at(index);
}

std::vector<dim_t> random_lengths(dim_t batch, dim_t tokens, TorchGenerator& generator) {
  std::vector<dim_t> lengths;
  for (dim_t b = 0; b < batch; ++b) lengths.push_back(below(generator, tokens + 1));
  return lengths;
}

void add_tensor_part(MaskSpec& spec, const std::string& part, const MaskExtent& extent,
                     TorchGenerator& generator) {
  if (part == "bias") {
    Tensor values = generator.randn({extent.num_heads, extent.q_tokens, extent.kv_tokens});
    for (dim_t k = 0; k < values.numel(); ++k) {  // some pairs hidden by -inf
      if (generator.randint(0, 8) == 0) {
        values.mutable_data_as<float>()[k] = -std::numeric_limits<float>::infinity();
      }
    }
    auto shared = std::make_shared<const Tensor>(std::move(values));
    spec.mask = spec.mask & bias(Tensor::copy(*shared));
    spec.adds.emplace_back([shared](const auto& pair) { return flag_at(*shared, pair); });
    spec.may_look.emplace_back(
        [shared](const auto& pair) { return !std::isinf(flag_at(*shared, pair)); });
    return;
  }
  const auto flags = random_flags(extent, generator);
  const bool is_keep = part == "keep";
  spec.mask = spec.mask & (is_keep ? keep(Tensor::copy(*flags)) : drop(Tensor::copy(*flags)));
  spec.may_look.emplace_back(
      [flags, is_keep](const auto& pair) { return (flag_at(*flags, pair) != 0.0) == is_keep; });
}

Tensor document_tensor(dim_t tokens, TorchGenerator& generator) {
  Tensor ids = Tensor::empty({tokens}, DType::i64);
  for (dim_t t = 0; t < tokens; ++t) {
    ids.mutable_data_as<std::int64_t>()[t] = t * 3 / std::max<dim_t>(tokens, 1);
    if (generator.randint(0, 10) == 0) ids.mutable_data_as<std::int64_t>()[t] = -1;
  }
  return ids;
}

void add_causal(MaskSpec& spec, const std::vector<dim_t>& prefix) {
  spec.mask = spec.mask & causal(prefix);
  spec.may_look.emplace_back([prefix](const auto& pair) {
    return pair.j <= pair.p || pair.j < prefix[static_cast<std::size_t>(pair.b)];
  });
}

void add_window(MaskSpec& spec, dim_t left, dim_t right) {
  spec.mask = spec.mask & window(left, right);
  spec.may_look.emplace_back([left, right](const auto& pair) {
    return (left == unlimited || pair.j >= pair.p - left) &&
           (right == unlimited || pair.j <= pair.p + right);
  });
}

void add_positions(MaskSpec& spec, bool top_left, dim_t offset) {
  spec.top_left = top_left;
  spec.offset = offset;
  spec.mask = spec.mask & positions(top_left ? Align::top_left : Align::bottom_right, offset);
}

void add_lengths(MaskSpec& spec, const std::vector<dim_t>& kv,
                 const std::optional<std::vector<dim_t>>& q) {
  spec.kv_len = kv;
  spec.mask = spec.mask & (q ? lengths(kv, *q) : lengths(kv));
  spec.may_look.emplace_back(
      [kv](const auto& pair) { return pair.j < kv[static_cast<std::size_t>(pair.b)]; });
  if (!q) return;
  spec.q_len = *q;
  spec.may_look.emplace_back(
      [q = *q](const auto& pair) { return pair.i < q[static_cast<std::size_t>(pair.b)]; });
}

// What positions are counted from, where no part said so.
void fill_lengths(MaskSpec& spec, const MaskExtent& extent) {
  const auto batch = static_cast<std::size_t>(extent.batch);
  if (spec.kv_len.empty()) spec.kv_len.assign(batch, extent.kv_tokens);
  if (spec.q_len.empty()) spec.q_len.assign(batch, extent.q_tokens);
}

void add_part(MaskSpec& spec, const std::string& part, const MaskExtent& extent,
              TorchGenerator& generator) {
  if (part == "causal") {
    spec.mask = spec.mask & causal();
    spec.may_look.emplace_back([](const auto& pair) { return pair.j <= pair.p; });
  } else if (part == "prefix") {
    add_causal(spec, random_lengths(extent.batch, extent.kv_tokens, generator));
  } else if (part == "window") {
    const dim_t left = generator.randint(0, 2) == 0 ? unlimited : below(generator, 9);
    const dim_t right = generator.randint(0, 3) == 0 ? unlimited : below(generator, 9);
    add_window(spec, left, right);
  } else if (part == "top_left" || part == "offset") {
    add_positions(spec, part == "top_left", generator.randint(-3, 4));
  } else if (part == "kv_lengths") {
    add_lengths(spec, random_lengths(extent.batch, extent.kv_tokens, generator), std::nullopt);
  } else if (part == "lengths") {
    const std::vector<dim_t> kv = random_lengths(extent.batch, extent.kv_tokens, generator);
    add_lengths(spec, kv, random_lengths(extent.batch, extent.q_tokens, generator));
  } else if (part == "documents") {
    auto q_ids = std::make_shared<const Tensor>(document_tensor(extent.q_tokens, generator));
    auto kv_ids = std::make_shared<const Tensor>(document_tensor(extent.kv_tokens, generator));
    spec.mask = spec.mask & documents(*q_ids, *kv_ids);
    spec.may_look.emplace_back([q_ids, kv_ids](const auto& pair) {
      const double id = q_ids->at({pair.i});
      return id >= 0 && id == kv_ids->at({pair.j});
    });
  } else if (part == "alibi") {
    const std::vector<float> slopes = alibi_slopes(extent.num_heads);
    spec.mask = spec.mask & alibi(slopes);
    spec.adds.emplace_back([slopes](const auto& pair) {
      return -static_cast<double>(slopes[static_cast<std::size_t>(pair.h)]) *
             std::abs(static_cast<double>(pair.p - pair.j));
    });
  } else if (part == "keep" || part == "drop" || part == "bias") {
    add_tensor_part(spec, part, extent, generator);
  } else if (part != "none") {
    throw std::runtime_error("no mask part " + part);
  }
}

}  // namespace

dim_t MaskSpec::position(dim_t b, dim_t i) const {
  const auto at = static_cast<std::size_t>(b);
  return i + offset + (top_left ? 0 : kv_len[at] - q_len[at]);
}

bool MaskSpec::visible(dim_t b, dim_t h, dim_t i, dim_t j) const {
  const Pair pair{b, h, i, j, position(b, i)};
  for (const auto& rule : may_look) {
    if (!rule(pair)) return false;
  }
  return true;
}

double MaskSpec::added(dim_t b, dim_t h, dim_t i, dim_t j) const {
  const Pair pair{b, h, i, j, position(b, i)};
  double sum = 0.0;
  for (const auto& term : adds) sum += term(pair);
  return sum;
}

MaskTable::MaskTable(const MaskSpec& spec, const MaskExtent& e) {
  const auto pairs = static_cast<std::size_t>(e.batch * e.num_heads * e.q_tokens * e.kv_tokens);
  visible.reserve(pairs);
  added.reserve(pairs);
  for (dim_t b = 0; b < e.batch; ++b) {
    for (dim_t h = 0; h < e.num_heads; ++h) {
      for (dim_t i = 0; i < e.q_tokens; ++i) {
        for (dim_t j = 0; j < e.kv_tokens; ++j) {
          visible.push_back(spec.visible(b, h, i, j));
          added.push_back(visible.back() ? spec.added(b, h, i, j) : 0.0);
        }
      }
    }
  }
}

const std::vector<std::string>& mask_part_names() {
  static const std::vector<std::string> names = {
      "none",    "causal",    "prefix", "window", "top_left", "offset", "kv_lengths",
      "lengths", "documents", "keep",   "drop",   "bias",     "alibi"};
  return names;
}

bool parts_combine(const std::string& a, const std::string& b) {
  const auto is_lengths = [](const std::string& part) { return part.ends_with("lengths"); };
  const auto is_map = [](const std::string& part) {
    return part == "top_left" || part == "offset";
  };
  if (is_lengths(a) && is_lengths(b)) return false;
  if (is_map(a) && is_map(b)) return false;
  return !(a == "documents" && b == "documents");
}

std::vector<std::vector<std::string>> mask_combinations() {
  std::vector<std::vector<std::string>> combinations;
  const auto& names = mask_part_names();
  for (std::size_t a = 0; a < names.size(); ++a) {
    combinations.push_back({names[a]});
    for (std::size_t b = a + 1; b < names.size(); ++b) {
      if (parts_combine(names[a], names[b])) combinations.push_back({names[a], names[b]});
    }
  }
  return combinations;
}

MaskSpec make_mask_spec(const std::vector<std::string>& parts, const MaskExtent& extent,
                        TorchGenerator& generator) {
  MaskSpec spec;
  for (const std::string& part : parts) {
    spec.name += (spec.name.empty() ? "" : " & ") + part;
    add_part(spec, part, extent, generator);
  }
  fill_lengths(spec, extent);
  return spec;
}

MaskSpec make_mask_spec(const PositionalParts& parts, const MaskExtent& extent) {
  MaskSpec spec;
  if (parts.positions)
    add_positions(spec, parts.positions->align == Align::top_left, parts.positions->offset);
  if (parts.prefix) add_causal(spec, *parts.prefix);
  if (parts.window) add_window(spec, parts.window->left, parts.window->right);
  if (parts.lengths) add_lengths(spec, parts.lengths->kv, parts.lengths->q);
  fill_lengths(spec, extent);
  spec.name = spec.mask.to_string();
  return spec;
}

}  // namespace cephalo::testing
