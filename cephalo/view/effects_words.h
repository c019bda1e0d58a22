#pragma once

// Inside the library only.
#include <string>

#include "cephalo/view/effects_report.h"

namespace cephalo {

// What is known of a head that changes the predicted token's logit by so much when it is changed.
// All that is said was measured: the size by the change, what it adds itself and from which token
// by attribution.
HeadInfluence influence_of(const EffectsReport& report, const HeadPlace& place,
                           double logit_change);

// "set to zero", "replaced by its mean over this text"
std::string in_words(const EffectsOptions& options);

}  // namespace cephalo
