// Teaches one attention layer to copy, and another to look at the token before. Each sentence is
// the alphabet, shuffled; nothing but attention brings one token's letter to another.
#include <cephalo/cephalo.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

using namespace cephalo;

namespace {

constexpr dim_t kLetters = 26;  // in the vocabulary and in a sentence

struct Lesson {
  Tensor x;        // [tokens, 2 · letters]: a one for the letter, a one for the place
  Tensor targets;  // [tokens]: the letter `back` places before; the first ones have none
};

Lesson new_lesson(TorchGenerator& random, dim_t back) {
  const std::vector<std::int64_t> sentence = random.randperm(kLetters);
  Lesson lesson{Tensor::zeros({kLetters, 2 * kLetters}), Tensor::empty({kLetters}, DType::i64)};
  for (dim_t i = 0; i < kLetters; ++i) {
    lesson.x.set({i, sentence[i]}, 1.0);
    lesson.x.set({i, kLetters + i}, 1.0);
    lesson.targets.mutable_data_as<std::int64_t>()[i] =
        i < back ? kIgnoreTarget : sentence[i - back];
  }
  return lesson;
}

// weights: [tokens, tokens] -> the mean of those that look `back` places back
double mean_weight(const TensorView& weights, dim_t back) {
  double sum = 0.0;
  for (dim_t i = back; i < kLetters; ++i) sum += weights.at({i, i - back});
  return sum / static_cast<double>(kLetters - back);
}

// One line for each query, one character for each key that it may look at: the darker, the more.
void draw(const TensorView& weights) {
  for (dim_t i = 0; i < kLetters; ++i) {
    std::string line = "  ";
    for (dim_t j = 0; j <= i; ++j) line += ".:-=+*#%@"[static_cast<int>(8.99 * weights.at({i, j}))];
    std::printf("%s\n", line.c_str());
  }
}

// A layer whose output is a logit for each letter, and the rounds of learning.
bool teach(const char* what, dim_t back) {
  MultiHeadAttention layer({.d_in = 2 * kLetters, .d_out = kLetters, .seed = 123});
  Gradients gradients = layer.new_gradients();
  std::map<std::string, AdamWState> states;
  TorchGenerator random(1);
  double looking = 0.0;
  for (int step = 0; step <= 1000 && looking < 0.95; ++step) {
    const Lesson lesson = new_lesson(random, back);
    auto [y, saved] = layer.forward_train(lesson.x);
    const double loss = cross_entropy(y, lesson.targets, y);  // y is now its own gradient
    gradients.zero();
    layer.backward(saved, y, {}, gradients);
    layer.update_all([&](const std::string& name, const MutableTensorView& parameter) {
      adamw_step(parameter, gradients.find(name), states[name], {.learning_rate = 0.03});
    });
    if (step % 20 != 0) continue;
    const Trace trace = layer.trace(lesson.x);
    looking = mean_weight(trace.at("weights").value[0], back);
    std::printf("%s: step %4d  loss %.4f  weight %.3f\n", what, step, loss, looking);
    if (looking >= 0.95) draw(trace.at("weights").value[0]);
  }
  return looking >= 0.95;
}

}  // namespace

int main() {
  const bool copies = teach("copy", 0);
  const bool looks_back = teach("the token before", 1);
  return copies && looks_back ? 0 : 1;
}
