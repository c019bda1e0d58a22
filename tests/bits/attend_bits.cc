#include "cephalo/attention/attend.h"
#include "cephalo/attention/weights.h"
#include "cephalo/core/random.h"
#include "cephalo/core/views.h"
#include "tests/bits/bits.h"
#include "tests/bits/problems.h"
#include "tests/support/tensors.h"

namespace cephalo::testing {
namespace {

constexpr Engine kEngines[] = {Engine::fused, Engine::reference};
constexpr Sizes kMiddle{2, 4, 2, 97, 257, 40};

std::string line_name(DType dtype, Engine engine, const std::string& mask, const Sizes& sizes) {
  return std::string("attend/") + cephalo::name(dtype) + "/" + name(engine) + "/" + mask + "/" +
         name(sizes);
}

void add_case(Bits& bits, const std::string& line, const Problem& p, const Mask& mask,
              AttendOptions options) {
  options.return_lse = true;
  options.threads = bits.threads();
  const AttendResult r = attend(p.q, p.k, p.v, mask, options);
  bits.add(line, r.context, r.lse, r.weights, r.scores);
}

void add_every_mask(Bits& bits, DType dtype) {
  const Problem problem(kMiddle, dtype);
  for (const NamedMask& m : masks_for(kMiddle)) {
    for (const Engine engine : kEngines) {
      add_case(bits, line_name(dtype, engine, m.name, kMiddle), problem, m.mask,
               {.return_weights = true, .engine = engine});
    }
  }
}

void add_every_size(Bits& bits, DType dtype) {
  for (const Sizes& sizes : odd_sizes()) {
    const Problem problem(sizes, dtype);
    for (const NamedMask& m : few_masks_for(sizes)) {
      for (const Engine engine : kEngines) {
        add_case(bits, line_name(dtype, engine, m.name, sizes), problem, m.mask,
                 {.engine = engine});
      }
    }
  }
}

// 16-bit keys and values under float32 queries, as a cache may hold them.
void add_mixed_types(Bits& bits) {
  for (const DType kv : {DType::bf16, DType::f16}) {
    const Problem problem(kMiddle, DType::f32, kv);
    for (const Engine engine : kEngines) {
      add_case(bits, std::string("attend/float32-") + cephalo::name(kv) + "/" + name(engine),
               problem, causal(), {.engine = engine});
    }
  }
}

// More than one tile each way.
void add_many_tokens(Bits& bits) {
  constexpr Sizes kMany{1, 2, 1, 300, 1100, 64};
  const Problem problem(kMany, DType::f32);
  for (const Engine engine : kEngines) {
    add_case(bits, line_name(DType::f32, engine, "causal", kMany), problem, causal(),
             {.engine = engine});
  }
}

// Heads that lie as a projection leaves them: [batch, tokens, heads, head_dim].
void add_strided(Bits& bits) {
  const Tensor q = normal({2, 97, 4, 40}, 21);
  const Tensor k = normal({2, 257, 2, 40}, 22);
  const Tensor v = normal({2, 257, 2, 40}, 23);
  for (const Engine engine : kEngines) {
    const AttendResult r = attend(transpose(q, 1, 2), transpose(k, 1, 2), transpose(v, 1, 2),
                                  causal(), {.engine = engine, .threads = bits.threads()});
    bits.add("attend/strided/" + name(engine), r.context);
  }
}

void add_options(Bits& bits) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Problem problem(kMiddle, dtype);
    for (const Engine engine : kEngines) {
      const std::string end = std::string("/") + cephalo::name(dtype) + "/" + name(engine);
      const auto add = [&](const char* label, AttendOptions options) {
        options.engine = engine;
        add_case(bits, std::string("attend/") + label + end, problem, causal(), options);
      };
      add("scale", {.scale = 0.3});
      add("softcap", {.softcap = 2.5});
      add("dropout", {.dropout = 0.2, .seed = 77});
      add("dropout+softcap", {.softcap = 30.0, .dropout = 0.5, .seed = 3});
    }
  }
  const Problem problem(kMiddle, DType::f32);
  for (const auto& [label, stream] : {std::pair{"torch", DropoutStream::torch},
                                      std::pair{"torch_mkl", DropoutStream::torch_mkl}}) {
    for (const bool in_turn : {false, true}) {
      TorchGenerator generator(9);
      add_case(bits, std::string("attend/dropout-") + label + (in_turn ? "-in-turn" : ""), problem,
               causal(),
               {.dropout = 0.1,
                .dropout_stream = stream,
                .generator = &generator,
                .heads_draw_in_turn = in_turn});
    }
  }
  for (const auto& [label, tap] :
       {std::pair{"scaled", ScoresTap::scaled}, std::pair{"softcapped", ScoresTap::softcapped},
        std::pair{"masked", ScoresTap::masked}}) {
    add_case(bits, std::string("attend/scores-") + label, problem, causal() & window(40, 0),
             {.softcap = 5.0, .return_scores = tap});
  }
}

// weights, pooled_weights and row_sums, from what attend returned.
void add_looks(Bits& bits, DType dtype) {
  const Problem p(kMiddle, dtype);
  std::vector<std::int64_t> tokens;
  for (dim_t j = 0; j < kMiddle.kv_tokens; ++j) tokens.push_back(j * j % 23);
  const TensorView ids(tokens.data(), {kMiddle.kv_tokens});
  for (const NamedMask& m : masks_for(kMiddle)) {
    const AttendOptions options{
        .dropout = 0.1, .seed = 5, .return_lse = true, .threads = bits.threads()};
    const Tensor lse = attend(p.q, p.k, p.v, m.mask, options).lse;
    const WeightsSelection some{.heads = {3, 1}, .rows = {96, 0, 41}, .dropped = true};
    const PooledWeights pooled = pooled_weights(p.q, p.k, lse, 31, 2, 1, m.mask, options);
    const std::string begin = std::string("looks/") + cephalo::name(dtype) + "/" + m.name;
    bits.add(begin + "/weights", weights(p.q, p.k, lse, m.mask, options),
             weights(p.q, p.k, lse, m.mask, options, some));
    bits.add(begin + "/pooled", pooled.largest, pooled.mean);
    bits.add(begin + "/row_sums", row_sums(p.q, p.k, lse, ids, m.mask, options));
  }
}

}  // namespace

void add_attend_bits(Bits& bits) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    add_every_mask(bits, dtype);
    add_every_size(bits, dtype);
  }
  add_mixed_types(bits);
  add_many_tokens(bits);
  add_strided(bits);
  add_options(bits);
  add_looks(bits, DType::f32);
  add_looks(bits, DType::bf16);
}

}  // namespace cephalo::testing
