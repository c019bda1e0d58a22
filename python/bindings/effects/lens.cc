#include "cephalo/effects/lens.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/effects/kept_pass.h"

namespace cephalo::python {
namespace {

LensNorm norm_of(const std::string& word) {
  if (word == "fresh") return LensNorm::fresh;
  if (word == "frozen") return LensNorm::frozen;
  require(word == "none", "lens: norm '{}' is none of fresh, frozen, none", word);
  return LensNorm::none;
}

Lens lens(const PassOfText& self, const std::string& norm, dim_t top,
          const std::optional<std::vector<dim_t>>& positions, const nb::object& token) {
  LensOptions options{.norm = norm_of(norm), .top = top};
  if (positions) {
    for (const dim_t at : *positions) options.positions.push_back(position_of(self, at, "lens"));
  }
  if (!token.is_none()) options.token = token_of(self.model, token, "lens", "token");
  return asked(self, [&](const KeptPass& p) { return logit_lens(p, options); });
}

}  // namespace

void bind_lens(nb::module_& m, nb::class_<PassOfText>& pass) {
  nb::class_<LensCell>(m, "LensCell", "What the model would say at one position after one layer.")
      .def_prop_ro(
          "top",
          [](const LensCell& c) {
            std::vector<std::pair<std::int64_t, double>> top;
            for (const TokenProbability& t : c.top) top.emplace_back(t.id, t.probability);
            return top;
          },
          "(id, probability), the likeliest first")
      .def_ro("probability", &LensCell::probability, "of the token that is followed")
      .def_ro("rank", &LensCell::rank, "of that token, 0 the likeliest")
      .def_ro("entropy", &LensCell::entropy, "in nats");
  nb::class_<Lens>(m, "Lens", "What the model would say after each layer.")
      .def_ro("positions", &Lens::positions)
      .def_ro("tokens", &Lens::tokens, "whose probability it is, by position")
      .def_ro("cells", &Lens::cells, "[num_layers + 1][position]");
  pass.def(
      "lens", &lens, nb::kw_only(), "norm"_a = "fresh", "top"_a = LensOptions().top,
      "positions"_a = nb::none(), "token"_a = nb::none(),
      "norm: fresh (the last norm, of each residual), frozen (with the scale of the last one) or "
      "none.\n"
      "positions: None means all. token: follow this one instead of the model's own "
      "prediction.");
}

}  // namespace cephalo::python
