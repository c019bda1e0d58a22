// The masks that kernels of a GPU are tried with.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "cephalo/core/random.h"
#include "tests/attention/cuda/pass.h"

namespace cephalo::testing {

inline std::vector<Mask> masks_by_position(dim_t batch, dim_t q_tokens, dim_t kv_tokens) {
  std::vector<dim_t> kv_len, q_len, prefix;
  for (dim_t b = 0; b < batch; ++b) {
    kv_len.push_back(kv_tokens - b * kv_tokens / 3);
    q_len.push_back(q_tokens - b * q_tokens / 4);
    prefix.push_back(kv_tokens / (2 + b));
  }
  return {Mask(),
          causal(),
          causal() & positions(Align::top_left),
          causal(prefix),
          window(60, 30),
          causal() & window(200, 0),
          lengths(kv_len),
          lengths(kv_len, q_len) & causal(),
          lengths(kv_len, q_len) & window(5, 70) & positions(Align::top_left, 13)};
}

// Stretches of several lengths, each with an id of its own.
inline Tensor ids_in_stretches(const Shape& shape, std::uint64_t seed, std::int64_t step) {
  Tensor ids = Tensor::zeros(shape, DType::i64);
  TorchGenerator generator(seed);
  const dim_t tokens = shape[shape.rank() - 1];
  for (dim_t n = 0, left = 0, id = 0; n < ids.numel(); ++n, --left) {
    if (n % tokens == 0) left = id = 0;
    if (left == 0) {
      left = generator.randint(1, tokens / 3 + 2);
      id += step;
    }
    ids.mutable_data_as<std::int64_t>()[n] = id;
  }
  return ids;
}

inline Tensor some_of(const Shape& shape, std::uint64_t seed, double share) {
  Tensor flags = Tensor::zeros(shape, DType::u8);
  const Tensor numbers = normal(shape, seed);
  for (dim_t n = 0; n < flags.numel(); ++n) {
    flags.mutable_data_as<std::uint8_t>()[n] =
        numbers.data_as<float>()[n] < static_cast<float>(share) ? 1 : 0;
  }
  return flags;
}

struct NamedMask {
  std::string name;
  Mask mask;
};

// Every part that positions do not say, alone and with others.
inline std::vector<NamedMask> masks_by_content(const Pass::Sizes& s, DType dtype) {
  static std::vector<Tensor> owned;  // documents and tensors are borrowed
  const auto own = [](Tensor&& t) -> const Tensor& {
    owned.reserve(4096);
    owned.push_back(std::move(t));
    return owned.back();
  };
  const Tensor& kv_ids = own(ids_in_stretches({s.kv_tokens}, 5, 1));
  Tensor q_ids = Tensor::zeros({s.q_tokens}, DType::i64);
  for (dim_t i = 0; i < s.q_tokens; ++i) {
    q_ids.set({i}, kv_ids.at({i * s.kv_tokens / s.q_tokens}));
  }
  const Tensor& queries = own(std::move(q_ids));
  const Tensor& mixed_q = own(ids_in_stretches({s.batch, s.q_tokens}, 6, -7));
  Tensor odd = Tensor::zeros({s.batch, s.kv_tokens}, DType::i64);
  for (dim_t n = 0; n < odd.numel(); ++n) odd.mutable_data_as<std::int64_t>()[n] = n % 5 - 1;
  Tensor odd_q = Tensor::zeros({s.batch, s.q_tokens}, DType::i64);
  for (dim_t n = 0; n < odd_q.numel(); ++n) odd_q.mutable_data_as<std::int64_t>()[n] = n % 3 - 1;
  const Tensor& interleaved = own(std::move(odd));
  const Tensor& interleaved_q = own(std::move(odd_q));
  const Tensor& kept = own(some_of({s.batch, 1, s.q_tokens, s.kv_tokens}, 7, 0.3));
  const Tensor& dropped = own(some_of({1, s.kv_tokens}, 8, -0.5));
  const Tensor& added = own(normal({1, s.heads, s.q_tokens, s.kv_tokens}, 9));
  const Tensor& narrow = own(normal({s.batch, 1, 1, s.kv_tokens}, 10, dtype));
  Tensor low = normal({s.q_tokens, s.kv_tokens}, 11);
  for (dim_t n = 0; n < low.numel(); n += 3) {
    low.mutable_data_as<float>()[n] = n % 2 == 0 ? -3.4e38F : -INFINITY;
  }
  const Tensor& lowest = own(std::move(low));
  std::vector<float> slopes;
  for (dim_t h = 0; h < s.heads; ++h) slopes.push_back(0.5F / static_cast<float>(h + 1));
  std::vector<dim_t> kv_len(static_cast<std::size_t>(s.batch), s.kv_tokens - s.kv_tokens / 4);
  return {{"documents", documents(queries, kv_ids)},
          {"documents & causal", documents(queries, kv_ids) & causal()},
          {"documents in no order", documents(interleaved_q, interleaved) & window(90, 40)},
          {"no document in common", documents(mixed_q, interleaved)},
          {"alibi", alibi(slopes) & causal()},
          {"alibi both ways", alibi(slopes) & lengths(kv_len)},
          {"keep", keep(kept)},
          {"drop", drop(dropped) & causal()},
          {"bias", bias(added)},
          {"bias, 16 bits, broadcast", bias(narrow) & causal()},
          {"bias of -inf and the lowest", bias(lowest)},
          {"all", documents(queries, kv_ids) & alibi(slopes) & keep(kept) & bias(added) &
                      bias(narrow) & window(150, 20) & lengths(kv_len)}};
}

}  // namespace cephalo::testing
