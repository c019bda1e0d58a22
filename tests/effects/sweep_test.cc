#include "cephalo/effects/sweep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "cephalo/core/ops.h"
#include "tests/effects/plain_gpt.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::lively_model;
using testing::lively_options;
using testing::plain_logits;
using testing::PlainGiven;
using testing::some_ids;

constexpr dim_t kTokens = 70;  // more than a tile of the engine

std::vector<std::int64_t> all_tokens(dim_t vocab_size) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(vocab_size));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

Changes joined(Changes a, const Changes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Every part with every kind it has, alone and together, in every layer.
std::vector<Changes> experiments() {
  using enum ChangeKind;
  std::vector<Changes> all;
  for (const char* layer : {"L0", "L1", "L2"}) {
    const std::string l = layer;
    for (const ChangeKind kind : {zero, mean, reference_mean, uniform, no_first, patch}) {
      all.push_back(parse_changes(l + "H3", kind));
    }
    all.push_back(parse_changes(l + "H2", scale, -1.5));
    for (const char* part : {"", ".attention", ".mlp"}) {
      all.push_back(parse_changes(l + part, zero));
    }
    for (const char* part : {".stream", ".stream:0", ".stream:33", ".stream:69"}) {
      all.push_back(parse_changes(l + part, patch));
    }
    for (const char* edge : {"H1:1>0", "H1:40>17", "H1:69>69", "H1:30>1"}) {
      all.push_back(parse_changes(l + edge, hide));
      all.push_back(parse_changes(l + edge, cut));
    }
  }
  all.push_back(parse_changes("L0H0,L1H3,L2H1", mean));
  all.push_back(parse_changes("L1H0,L1H1,L2H3", uniform));
  all.push_back(parse_changes("L1H2,L1H1,L2H3", no_first));
  all.push_back(parse_changes("L0H2,L2H0", patch));
  all.push_back(parse_changes("L1H2:40>3,L1H2:40>5,L1H2:41>3,L2H2:50>50", hide));
  all.push_back(
      joined(parse_changes("L1H2:40>3,L2H0:45>1", hide), parse_changes("L1H2:40>5", cut)));
  all.push_back(parse_changes("L0.attention,L0.mlp,L2H1", zero));
  all.push_back(joined(parse_changes("L1.mlp,L2.attention", zero), parse_changes("L1H2", mean)));
  all.push_back(
      joined(parse_changes("L1.stream:30,L2.stream:20", patch), parse_changes("L1H2,L2H0", mean)));
  all.push_back(joined(parse_changes("L1H2:30>4", cut), parse_changes("L2H1", uniform)));
  all.push_back(joined(parse_changes("L1H2:30>4", cut), parse_changes("L2.stream:40", patch)));
  all.push_back({});
  return all;
}

std::string text_of(const Changes& changes) {
  std::string text;
  for (const Change& c : changes) text += to_string(c) + " " + name(c.kind) + "; ";
  return text;
}

class SweepTest : public ::testing::TestWithParam<std::pair<PositionKind, DType>> {
 protected:
  SweepTest()
      : model_(lively_model(lively_options(GetParam().first, GetParam().second))),
        ids_(some_ids(kTokens, 23, 5)),
        other_ids_(some_ids(kTokens, 23, 6)),
        text_(model_, ids_),
        other_(text_.steps(), other_ids_),
        reference_(reference_mean({&other_})) {}

  SweepOptions options() const {
    SweepOptions o;
    o.patch_from = &other_;
    o.reference = &reference_;
    return o;
  }
  PlainGiven given() const { return {other_ids_, &reference_}; }
  double tolerance() const { return GetParam().second == DType::f64 ? 1e-12 : 2e-4; }

  Gpt model_;
  std::vector<std::int64_t> ids_, other_ids_;
  KeptPass text_, other_;
  Tensor reference_;
};

double loss_of(const Tensor& logits, dim_t row, std::int64_t target) {
  std::vector<double> weights(static_cast<std::size_t>(logits.dim(1)));
  const double lse =
      softmax_row(logits.data_as<double>() + row * logits.dim(1), logits.dim(1), weights.data());
  return lse - logits.at({row, target});
}

TEST_P(SweepTest, every_kind_is_what_its_definition_says) {
  const std::vector<Changes> all = experiments();
  const Measures everything{.logits = all_tokens(23), .losses = true};
  const std::vector<Measured> found = measure_changes(text_, all, everything, options());
  ASSERT_EQ(found.size(), all.size());
  for (std::size_t n = 0; n < all.size(); ++n) {
    const Tensor logits = plain_logits(model_, ids_, all[n], given());
    for (dim_t i = 0; i + 1 < kTokens; ++i) {
      const double wanted = loss_of(logits, i, ids_[static_cast<std::size_t>(i + 1)]);
      ASSERT_NEAR(found[n].losses[static_cast<std::size_t>(i)], wanted, tolerance())
          << text_of(all[n]) << i;
    }
    for (dim_t t = 0; t < 23; ++t) {
      ASSERT_NEAR(found[n].logits[static_cast<std::size_t>(t)], logits.at({kTokens - 1, t}),
                  tolerance())
          << text_of(all[n]) << t;
    }
  }
}

TEST_P(SweepTest, one_row_of_the_last_layer_is_what_it_is_among_all) {
  const std::vector<Changes> all = experiments();
  const std::vector<dim_t> positions{0, 33, 45, kTokens - 1};
  std::vector<std::vector<Measured>> found;
  for (const dim_t position : positions) {
    const Measures measures{.position = position, .logits = all_tokens(23)};
    found.push_back(measure_changes(text_, all, measures, options()));
  }
  for (std::size_t n = 0; n < all.size(); ++n) {
    const Tensor logits = plain_logits(model_, ids_, all[n], given());
    for (std::size_t p = 0; p < positions.size(); ++p) {
      for (dim_t t = 0; t < 23; ++t) {
        ASSERT_NEAR(found[p][n].logits[static_cast<std::size_t>(t)], logits.at({positions[p], t}),
                    tolerance())
            << text_of(all[n]) << positions[p];
      }
    }
  }
}

bool same(const Measured& a, const Measured& b) {
  const auto same_top = [](const TokenProbability& x, const TokenProbability& y) {
    return x.id == y.id && x.probability == y.probability;
  };
  const bool same_divergence =
      a.divergence == b.divergence || (std::isnan(a.divergence) && std::isnan(b.divergence));
  return a.logits == b.logits && a.rank == b.rank && same_divergence && a.losses == b.losses &&
         std::equal(a.top.begin(), a.top.end(), b.top.begin(), b.top.end(), same_top);
}

std::vector<Measures> kinds_of_measures() {
  return {{.logits = {3, 4}},
          {.position = 44, .logits = {3, 4}, .rank = 7, .divergence = true, .top = 3},
          {.losses = true},
          {.position = 50, .logits = {1}, .divergence = true, .losses = true}};
}

TEST_P(SweepTest, an_experiment_has_the_same_bits_alone_and_in_any_sweep) {
  std::vector<Changes> all = experiments();
  for (const Changes& head : each_head(model_.options(), ChangeKind::zero)) all.push_back(head);
  for (const Changes& pair : each_pair(model_.options(), ChangeKind::mean)) all.push_back(pair);
  all.push_back(all.back());
  for (const Measures& measures : kinds_of_measures()) {
    std::vector<Measured> alone;
    for (const Changes& each : all) alone.push_back(measure(text_, each, measures, options()));
    for (const std::size_t memory : {std::size_t{0}, std::size_t{200'000}, std::size_t{1} << 30}) {
      for (const int threads : {1, 2, 3}) {
        SweepOptions o = options();
        o.memory = memory;
        o.threads = threads;
        const std::vector<Measured> together = measure_changes(text_, all, measures, o);
        for (std::size_t n = 0; n < all.size(); ++n) {
          ASSERT_TRUE(same(together[n], alone[n])) << text_of(all[n]) << memory << " " << threads;
        }
      }
    }
    std::vector<Changes> turned(all.rbegin(), all.rend());
    const std::vector<Measured> backward = measure_changes(text_, turned, measures, options());
    for (std::size_t n = 0; n < all.size(); ++n) {
      ASSERT_TRUE(same(backward[all.size() - 1 - n], alone[n])) << text_of(all[n]);
    }
  }
}

TEST_P(SweepTest, no_changes_leave_the_bits_of_the_model) {
  const Tensor logits = model_(TensorView(ids_.data(), {kTokens}));
  const Measured found = measure(text_, {}, {.logits = all_tokens(23)});
  for (dim_t t = 0; t < 23; ++t) {
    EXPECT_EQ(found.logits[static_cast<std::size_t>(t)], logits.at({kTokens - 1, t}));
  }
}

TEST_P(SweepTest, positions_before_a_change_keep_their_bits) {
  const Measures measures{.position = 20, .logits = {5}, .losses = true};
  const Measured before = measure(text_, {}, measures);
  for (const char* text : {"L0H1:40>17", "L2H1:21>17"}) {
    const Changes changes = parse_changes(text, ChangeKind::hide);
    const Measured after = measure(text_, changes, measures);
    const auto query = static_cast<std::size_t>(changes.front().query);
    EXPECT_EQ(after.logits, before.logits);
    EXPECT_TRUE(std::equal(before.losses.begin(), before.losses.begin() + static_cast<dim_t>(query),
                           after.losses.begin()));
    EXPECT_NE(after.losses[query], before.losses[query]);
  }
}

// The model with some of its parameters edited, and what it makes of the ids.
Measured edited(const Gpt& model, const std::vector<std::int64_t>& ids, const Measures& measures,
                const std::function<void(const std::string&, const MutableTensorView&)>& edit) {
  const Gpt other(model.options(), [&](const std::string& name, const MutableTensorView& to) {
    to.copy_from(model.parameter(name));
    edit(name, to);
  });
  return measure(KeptPass(other, ids), {}, measures);
}

void expect_near(const Measured& a, const Measured& b, double tolerance) {
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], tolerance) << i;
  }
}

TEST_P(SweepTest, replacing_equals_editing_parameters) {
  const Measures measures{.losses = true};
  const dim_t dim = model_.options().head_dim();
  for (dim_t layer = 0; layer < 3; ++layer) {
    const std::string block = "transformer.h." + std::to_string(layer) + ".";
    const std::string l = "L" + std::to_string(layer);
    const auto clear = [&](const std::string& part) {
      return [&, part](const std::string& name, const MutableTensorView& to) {
        if (name.rfind(block + part, 0) == 0) to.fill(0.0);
      };
    };
    expect_near(measure(text_, parse_changes(l + ".attention", ChangeKind::zero), measures),
                edited(model_, ids_, measures, clear("attn.c_proj")), tolerance());
    expect_near(measure(text_, parse_changes(l + ".mlp", ChangeKind::zero), measures),
                edited(model_, ids_, measures, clear("mlp.c_proj")), tolerance());
    for (const double factor : {0.0, 0.5}) {
      const ChangeKind kind = factor == 0.0 ? ChangeKind::zero : ChangeKind::scale;
      expect_near(measure(text_, parse_changes(l + "H2", kind, factor), measures),
                  edited(model_, ids_, measures,
                         [&](const std::string& name, const MutableTensorView& to) {
                           if (name != block + "attn.c_proj.weight") return;
                           const MutableTensorView columns = to.slice(1, 2 * dim, 3 * dim);
                           columns.copy_from(multiply(columns, factor));
                         }),
                  tolerance());
    }
  }
}

TEST_P(SweepTest, measures_of_a_position_are_those_of_its_logits) {
  const Changes changes = parse_changes("L1H1", ChangeKind::zero);
  const Measured found =
      measure(text_, changes,
              {.position = 30, .logits = all_tokens(23), .rank = 9, .divergence = true, .top = 4});
  const Tensor before = plain_logits(model_, ids_, {});
  const Tensor after = plain_logits(model_, ids_, changes);
  std::vector<double> p(23), q(23);
  softmax_row(before.data_as<double>() + 30 * 23, 23, p.data());
  softmax_row(after.data_as<double>() + 30 * 23, 23, q.data());
  double divergence = 0.0;
  for (std::size_t t = 0; t < 23; ++t) divergence += p[t] * std::log(p[t] / q[t]);
  EXPECT_GT(divergence, 1e-3);
  EXPECT_NEAR(found.divergence, divergence, tolerance());
  EXPECT_EQ(found.rank, std::count_if(q.begin(), q.end(), [&](double x) { return x > q[9]; }));
  ASSERT_EQ(found.top.size(), 4U);
  for (std::size_t n = 0; n < 4; ++n) {
    EXPECT_EQ(
        std::count_if(q.begin(), q.end(),
                      [&](double x) { return x > q[static_cast<std::size_t>(found.top[n].id)]; }),
        static_cast<dim_t>(n));
    EXPECT_NEAR(found.top[n].probability, q[static_cast<std::size_t>(found.top[n].id)],
                tolerance());
  }
}

TEST_P(SweepTest, progress_counts_in_order_and_stops) {
  const std::vector<Changes> all = each_head(model_.options(), ChangeKind::zero);
  std::vector<std::size_t> seen;
  SweepOptions o = options();
  o.memory = 0;  // one at a time
  o.progress = [&](std::size_t done, std::size_t of) {
    EXPECT_EQ(of, 12U);
    seen.push_back(done);
    return true;
  };
  const std::vector<Measured> whole = measure_changes(text_, all, {.logits = {1}}, o);
  std::vector<std::size_t> wanted(12);
  std::iota(wanted.begin(), wanted.end(), 1);
  EXPECT_EQ(seen, wanted);
  o.progress = [](std::size_t done, std::size_t) { return done < 7; };
  const std::vector<Measured> part = measure_changes(text_, all, {.logits = {1}}, o);
  ASSERT_EQ(part.size(), 7U);
  for (std::size_t n = 0; n < 7; ++n) EXPECT_TRUE(same(part[n], whole[n]));
}

INSTANTIATE_TEST_SUITE_P(Models, SweepTest,
                         ::testing::Values(std::pair(PositionKind::learned, DType::f64),
                                           std::pair(PositionKind::rotary, DType::f64),
                                           std::pair(PositionKind::rotary, DType::f32)));

TEST(SweepErrorTest, A15_what_is_missing_is_named) {
  const Gpt model = lively_model(lively_options(PositionKind::learned, DType::f32));
  const KeptPass text(model, some_ids(9, 23, 1));
  const KeptPass longer(text.steps(), some_ids(10, 23, 1));
  const auto refusal = [&](const char* changes, ChangeKind kind, const Measures& measures,
                           const SweepOptions& options = {}) {
    return error_of([&] { measure(text, parse_changes(changes, kind), measures, options); });
  };
  EXPECT_EQ(refusal("L1H1", ChangeKind::patch, {}),
            "L1H1: patch needs patch_from, the run that it takes from");
  EXPECT_EQ(refusal("L1H1", ChangeKind::reference_mean, {}),
            "L1H1: reference-mean needs reference, the means that it takes");
  EXPECT_EQ(refusal("L1H1", ChangeKind::patch, {}, {.patch_from = &longer}),
            "measure_changes: patch_from has 10 tokens, the text 9; positions must correspond");
  EXPECT_EQ(refusal("L1H7", ChangeKind::zero, {}), "L1H7: a layer has heads 0 to 3");
  EXPECT_EQ(refusal("L1H1", ChangeKind::zero, {.logits = {23}}),
            "measures: token 23 is outside the vocabulary of 23");
  EXPECT_EQ(refusal("L1H1", ChangeKind::zero, {.position = 9}),
            "measures: position 9 is not among tokens 0 to 8; -1 means the last");
  EXPECT_EQ(error_of([&] { KeptPass(model, {}); }), "KeptPass: there are no tokens");
  EXPECT_EQ(error_of([&] { KeptPass(model, some_ids(81, 23, 1)); }),
            "KeptPass: 81 tokens exceed context_length (80)");
}

TEST(SweepErrorTest, one_token_is_enough) {
  const Gpt model = lively_model(lively_options(PositionKind::rotary, DType::f64));
  const KeptPass text(model, {4});
  for (const ChangeKind kind : {ChangeKind::zero, ChangeKind::mean, ChangeKind::uniform,
                                ChangeKind::no_first, ChangeKind::scale}) {
    const Changes changes = parse_changes("L1H1", kind);
    const Measured found = measure(text, changes, {.logits = {3}, .losses = true});
    EXPECT_TRUE(found.losses.empty());
    EXPECT_NEAR(found.logits[0], plain_logits(model, {4}, changes).at({0, 3}), 1e-12);
  }
}

}  // namespace
}  // namespace cephalo
