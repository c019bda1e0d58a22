#pragma once

// Inside the library only.
#include <cstdint>
#include <vector>

#include "cephalo/core/tensor.h"
#include "cephalo/effects/measure.h"

namespace cephalo {

// What one row of logits says of the token that comes next, in float64.
class NextToken {
 public:
  explicit NextToken(const TensorView& logits);  // [vocab_size], any floating type

  double probability(std::int64_t id) const;
  dim_t rank(std::int64_t id) const;  // 0 the likeliest; equal ones in the order of their ids
  double entropy() const { return entropy_; }  // in nats
  std::vector<TokenProbability> top(dim_t count) const;
  std::int64_t likeliest() const;
  double divergence_to(const NextToken& other) const;  // KL(this ‖ other), in nats

 private:
  double logit(std::int64_t id) const { return logits_[static_cast<std::size_t>(id)]; }
  bool before(std::int64_t a, std::int64_t b) const;

  std::vector<double> logits_;
  double log_sum_;  // of their exponentials
  double entropy_;
};

}  // namespace cephalo
