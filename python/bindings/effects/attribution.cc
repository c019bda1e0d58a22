#include "cephalo/effects/attribution.h"

#include <utility>

#include "bindings/attention/attend.h"
#include "bindings/bindings.h"
#include "bindings/effects/kept_pass.h"

namespace cephalo::python {
namespace {

AnyArray attribute(const PassOfText& self, const nb::object& token, dim_t position) {
  constexpr const char* kName = "attribute";
  const std::int64_t id = token_of(self.model, token, kName, "token");
  const dim_t at = position_of(self, position, kName);
  Attribution a = asked(self, [&](const KeptPass& p) { return attribute_logit(p, at, id); });
  const double sum = a.sum();
  return nb::borrow<AnyArray>(ResultType("Attribution")(
      a.position, a.token, a.logit, a.token_embedding, a.position_embedding,
      made(std::move(a.heads)), made(std::move(a.out_bias)), made(std::move(a.mlp)), a.bias, sum));
}

AnyArray sources(const PassOfText& self, dim_t layer, dim_t head, const nb::object& token,
                 dim_t position) {
  constexpr const char* kName = "attribute_sources";
  const std::int64_t id = token_of(self.model, token, kName, "token");
  const dim_t at = position_of(self, position, kName);
  return made(
      asked(self, [&](const KeptPass& p) { return attribute_sources(p, layer, head, at, id); }));
}

}  // namespace

void bind_attribution(nb::class_<PassOfText>& pass) {
  pass.def("attribute", &attribute, "token"_a, "position"_a = -1,
           "What each part adds directly to the logit of a token (an id, or a str that is one "
           "token),\n"
           "the last norm's scale being that of the run -> Attribution, whose parts add up to the "
           "logit.");
  pass.def("attribute_sources", &sources, "layer"_a, "head"_a, "token"_a, "position"_a = -1,
           "A head's part by the tokens that it looks at -> float64 [position + 1]; adds up to "
           "its part.");
}

}  // namespace cephalo::python
