#include "cephalo/effects/taps.h"

#include <algorithm>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/printable.h"
#include "cephalo/core/views.h"

namespace cephalo {
namespace {

bool is_at(const LayerSite& it, Site site, dim_t layer) {
  return it.site == site && it.layer == layer;
}

bool holds(const std::vector<KeptActivation>& kept, const std::string& name) {
  return std::any_of(kept.begin(), kept.end(),
                     [&](const KeptActivation& it) { return it.name == name; });
}

// value: [batch, heads, tokens, width] -> [batch, tokens, heads, width], the same memory
MutableTensorView with_tokens_first(const MutableTensorView& value) {
  const TensorView turned = transpose(value, 1, 2);
  return {value.mutable_data(), value.dtype(), turned.shape(), turned.strides()};
}

}  // namespace

TensorView KeptActivation::view() const {
  return tokens_first(site) ? transpose(value, 1, 2) : TensorView(value);
}

TensorView RunResult::at(const std::string& name) const {
  for (const KeptActivation& it : kept) {
    if (it.name == name) return it.view();
  }
  fail(Error::Kind::value, "RunResult: \"{}\" was not kept", shown(name));
}

Taps::Taps(const ModelRunOptions& options, const GptOptions& model) {
  for (const Replacement& by : options.replace) {
    require(by.change != nullptr, "run: nothing replaces \"{}\"", shown(by.name));
    changes_.push_back({parse_site(by.name, model), &by});
  }
  for (const std::string& name : options.keep) {
    if (!holds(kept_, name)) kept_.push_back({name, parse_site(name, model), {}});
  }
}

bool Taps::kept(Site site, dim_t layer) const {
  return std::any_of(kept_.begin(), kept_.end(),
                     [&](const KeptActivation& it) { return is_at(it.site, site, layer); });
}

bool Taps::replaced(Site site, dim_t layer) const {
  return std::any_of(changes_.begin(), changes_.end(),
                     [&](const Change& it) { return is_at(it.site, site, layer); });
}

void Taps::pass(Site site, dim_t layer, const MutableTensorView& value) {
  for (const Change& it : changes_) {
    if (!is_at(it.site, site, layer)) continue;
    it.by->change(tokens_first(it.site) ? with_tokens_first(value) : value);
  }
  for (KeptActivation& it : kept_) {
    if (is_at(it.site, site, layer)) it.value = Tensor::copy(value);
  }
}

}  // namespace cephalo
