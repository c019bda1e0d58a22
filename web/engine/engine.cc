// The page's engine as C functions, for JavaScript. A function that can fail returns −1, and
// engine_error() says why; texts and numbers of the last call lie in engine_text() and
// engine_numbers() until the next one.
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>

#include "cephalo/core/fail.h"
#include "web/engine/exports.h"
#include "web/engine/session.h"

namespace cephalo::page {

std::unique_ptr<Session> session;
std::string error;
std::string text;
std::vector<float> numbers;

Session& loaded() {
  require(session != nullptr, "page: no model is loaded");
  return *session;
}

void put_numbers(const Tensor& values) {
  const Tensor narrow = Tensor::copy(values, DType::f32);
  const auto* from = narrow.data_as<float>();
  numbers.assign(from, from + narrow.numel());
}

}  // namespace cephalo::page

namespace {

using namespace cephalo::page;
using cephalo::dim_t;

std::string_view view_of(const char* data, std::size_t bytes) {
  return {data, bytes};
}

}  // namespace

extern "C" {

void* EXPORT(engine_alloc)(std::size_t bytes) {
  return std::malloc(bytes);
}

void EXPORT(engine_free)(void* memory) {
  std::free(memory);
}

const char* EXPORT(engine_error)() {
  return error.c_str();
}

const char* EXPORT(engine_text)() {
  return text.data();
}

std::size_t EXPORT(engine_text_bytes)() {
  return text.size();
}

const float* EXPORT(engine_numbers)() {
  return numbers.data();
}

std::size_t EXPORT(engine_numbers_count)() {
  return numbers.size();
}

// files: pointer and size of name, config.json, model.safetensors, vocab.json and merges.txt
int EXPORT(engine_load)(const std::size_t* files) {
  return guarded([&] {
    const auto file = [&](int n) {
      return view_of(reinterpret_cast<const char*>(files[2 * n]), files[2 * n + 1]);
    };
    const std::string_view parameters = file(2);
    session = std::make_unique<Session>(cephalo::page::ModelFiles{
        std::string(file(0)),
        file(1),
        {reinterpret_cast<const std::byte*>(parameters.data()), parameters.size()},
        file(3),
        file(4)});
    const cephalo::GptOptions& o = session->options();
    text = cephalo::Json({{"num_layers", o.num_layers},
                          {"num_heads", o.num_heads},
                          {"head_dim", o.head_dim()},
                          {"d_model", o.d_model},
                          {"context_length", o.context_length},
                          {"vocab_size", o.vocab_size}})
               .dump();
    return 0;
  });
}

// scores: [heads of all layers, 6]: value, rows and uniform of duplicate, then of induction
int EXPORT(engine_probe)(const double* scores, std::size_t heads) {
  return guarded([&] {
    std::vector<cephalo::ProbeScores> all;
    for (std::size_t n = 0; n < heads; ++n, scores += 6) {
      all.push_back({{scores[0], static_cast<dim_t>(scores[1]), scores[2]},
                     {scores[3], static_cast<dim_t>(scores[4]), scores[5]}});
    }
    loaded().set_probe(std::move(all));
    return 0;
  });
}

int EXPORT(engine_tokenize)(const char* data, std::size_t bytes) {
  return guarded([&] {
    text = loaded().tokenize(view_of(data, bytes)).dump();
    return 0;
  });
}

int EXPORT(engine_start)(const std::int32_t* ids, std::size_t count) {
  return guarded([&] {
    loaded().start({ids, ids + count});
    return 0;
  });
}

// -> how many layers are left
int EXPORT(engine_advance)() {
  return guarded([] { return static_cast<int>(loaded().advance()); });
}

int EXPORT(engine_report)(int top) {
  return guarded([&] {
    text = loaded().report(top).dump();
    return 0;
  });
}

int EXPORT(engine_weights)(int layer, int head, int first_row, int rows) {
  return guarded([&] {
    put_numbers(loaded().weights(layer, head, first_row, rows));
    return 0;
  });
}

int EXPORT(engine_value_norms)(int layer) {
  return guarded([&] {
    put_numbers(loaded().value_norms(layer));
    return 0;
  });
}

int EXPORT(engine_steps)(int layer, int head) {
  return guarded([&] {
    cephalo::Json described;
    numbers = loaded().steps(layer, head, described);
    text = described.dump();
    return 0;
  });
}

// seed: whole, as a number of JavaScript
int EXPORT(engine_probe_draws)(int length, int draws, double seed) {
  return guarded([&] {
    text = loaded().probe_draws(length, draws, static_cast<std::uint64_t>(seed)).dump();
    return 0;
  });
}

int EXPORT(engine_set_aside)(int back) {
  return guarded([&] {
    if (back != 0) {
      loaded().take_back();
    } else {
      loaded().set_aside();
    }
    return 0;
  });
}

}  // extern "C"
