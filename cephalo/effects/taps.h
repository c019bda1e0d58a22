#pragma once

// Inside the library only.
#include <vector>

#include "cephalo/effects/run.h"

namespace cephalo {

// What a run keeps and replaces, by site.
class Taps {
 public:
  // An error that names what is wrong with a name.
  Taps(const ModelRunOptions& options, const GptOptions& model);

  bool kept(Site site, dim_t layer) const;
  bool replaced(Site site, dim_t layer) const;
  bool wanted(Site site, dim_t layer) const { return kept(site, layer) || replaced(site, layer); }

  // An activation is on its way: it is replaced, then kept. value: in the order of SiteAxes, any
  // strides.
  void pass(Site site, dim_t layer, const MutableTensorView& value);

  std::vector<KeptActivation> take() && { return std::move(kept_); }

 private:
  struct Change {
    LayerSite site;
    const Replacement* by;
  };
  std::vector<Change> changes_;
  std::vector<KeptActivation> kept_;
};

}  // namespace cephalo
