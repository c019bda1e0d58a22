// The probe in the page: the same draws as the program's, and a place for the pass that is shown
// while they run.
#include <utility>

#include "cephalo/core/random.h"
#include "cephalo/view/head_metrics.h"
#include "web/engine/session.h"

namespace cephalo::page {

Json Session::probe_draws(dim_t length, dim_t draws, std::uint64_t seed) const {
  const ProbeOptions options{
      .length = length, .draws = draws, .seed = seed, .bos_token_id = model_->first_token()};
  TorchGenerator generator(seed);
  Json all = Json::array();
  for (dim_t draw = 0; draw < draws; ++draw) {
    Json ids = Json::array();
    for (const std::int64_t id : probe_ids(this->options().vocab_size, options, generator)) {
      ids.push_back(id);
    }
    all.push_back(std::move(ids));
  }
  return all;
}

void Session::set_aside() {
  aside_ = std::exchange(finished_, nullptr);
}

void Session::take_back() {
  finished_ = std::exchange(aside_, nullptr);
}

}  // namespace cephalo::page
