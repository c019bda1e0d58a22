#include "cephalo/attention/attend_backward.h"
#include "cephalo/core/random.h"
#include "tests/bits/bits.h"
#include "tests/bits/problems.h"
#include "tests/support/tensors.h"

namespace cephalo::testing {
namespace {

constexpr Engine kEngines[] = {Engine::fused, Engine::reference};
constexpr Sizes kMiddle{2, 4, 2, 97, 129, 40};

std::string line_name(DType dtype, Engine engine, const std::string& what, const Sizes& sizes) {
  return std::string("backward/") + cephalo::name(dtype) + "/" + name(engine) + "/" + what + "/" +
         name(sizes);
}

bool has_bias_tensor(const Mask& mask) {
  for (const MaskTensor& t : mask.tensors) {
    if (t.role == MaskTensor::Role::bias) return true;
  }
  return false;
}

// The gradients of one forward pass; the lse takes part in every other line.
void add_case(Bits& bits, const std::string& line, const Problem& p, const Mask& mask,
              AttendOptions options) {
  options.return_lse = true;
  options.threads = bits.threads();
  const AttendResult r = attend(p.q, p.k, p.v, mask, options);
  const Tensor dcontext = normal(r.context.shape(), 31, r.context.dtype());
  const Tensor dlse = normal(r.lse.shape(), 32, r.lse.dtype());
  AttendPass pass{r.context, r.lse, dcontext};
  if (bits.lines().size() % 2 == 0) pass.dlse = dlse;
  const AttendGradients g =
      attend_backward(pass, p.q, p.k, p.v, mask, options, has_bias_tensor(mask));
  Digest digest;
  digest.add(g.dq).add(g.dk).add(g.dv);
  for (const Tensor& dbias : g.dbias) digest.add(dbias);
  bits.add_digest(line, digest);
}

void add_dtype(Bits& bits, DType dtype) {
  const Problem middle(kMiddle, dtype);
  for (const Engine engine : kEngines) {
    for (const NamedMask& m : masks_for(kMiddle)) {
      add_case(bits, line_name(dtype, engine, m.name, kMiddle), middle, m.mask, {.engine = engine});
    }
    add_case(bits, line_name(dtype, engine, "scale", kMiddle), middle, causal(),
             {.scale = 0.3, .engine = engine});
    add_case(bits, line_name(dtype, engine, "softcap", kMiddle), middle, causal(),
             {.softcap = 2.5, .engine = engine});
    add_case(bits, line_name(dtype, engine, "dropout", kMiddle), middle, causal(),
             {.dropout = 0.2, .seed = 77, .engine = engine});
    for (const Sizes& sizes : odd_sizes()) {
      const Problem problem(sizes, dtype);
      for (const NamedMask& m : few_masks_for(sizes)) {
        add_case(bits, line_name(dtype, engine, m.name, sizes), problem, m.mask,
                 {.engine = engine});
      }
    }
  }
}

// Keys in several chunks, whose sums wait for each other.
void add_many_keys(Bits& bits) {
  constexpr Sizes kMany{1, 2, 1, 140, 1500, 64};
  const Problem problem(kMany, DType::f32);
  for (const Engine engine : kEngines) {
    add_case(bits, line_name(DType::f32, engine, "causal", kMany), problem, causal(),
             {.engine = engine});
  }
}

// The generator stands before the backward pass where it stood before the forward one.
void add_torch_dropout(Bits& bits) {
  const Problem p(kMiddle, DType::f32);
  TorchGenerator forward(9);
  AttendOptions options{.dropout = 0.1,
                        .dropout_stream = DropoutStream::torch,
                        .generator = &forward,
                        .return_lse = true,
                        .threads = bits.threads()};
  const AttendResult r = attend(p.q, p.k, p.v, causal(), options);
  TorchGenerator again(9);
  options.generator = &again;
  const Tensor dcontext = normal(r.context.shape(), 31);
  const AttendGradients g =
      attend_backward({r.context, r.lse, dcontext}, p.q, p.k, p.v, causal(), options);
  bits.add("backward/dropout-torch", g.dq, g.dk, g.dv);
}

}  // namespace

void add_backward_bits(Bits& bits) {
  add_dtype(bits, DType::f32);
  add_dtype(bits, DType::f64);
  add_many_keys(bits);
  add_torch_dropout(bits);
}

}  // namespace cephalo::testing
