#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"
#include "cephalo/train/clip.h"
#include "cephalo/train/loss.h"
#include "cephalo/train/sgd.h"
#include "cephalo/train/trainer.h"
#include "tests/bits/bits.h"

namespace cephalo::testing {
namespace {

constexpr int kSteps = 20;

GptOptions small_model(PositionKind positions) {
  GptOptions o;
  o.vocab_size = 37;
  o.context_length = 16;
  o.d_model = 32;
  o.num_heads = 4;
  o.num_layers = 2;
  o.dropout = 0.1;
  o.positions = positions;
  o.tied_head = positions == PositionKind::rotary;
  o.seed = 7;
  return o;
}

// Counting up from a place, by a stride, that the row's number decides.
void counting(std::int64_t number, std::span<std::int64_t> ids) {
  const PhiloxCounter drawn = philox(1, {static_cast<std::uint32_t>(number), 0, 0, 0});
  for (std::size_t t = 0; t < ids.size(); ++t) {
    ids[t] = static_cast<std::int64_t>((drawn[0] % 37 + (1 + drawn[1] % 3) * t) % 37);
  }
}

void add_parameters(Bits& bits, const std::string& line, const Gpt& model) {
  Digest digest;
  for (const GptParameter& p : model.parameters()) digest.add(p.value);
  bits.add_digest(line, digest);
}

void add_adamw(Bits& bits, const std::string& name, const GptOptions& options) {
  const UseThreads threads(bits.threads());
  Gpt model(options);
  TrainerOptions run;
  run.schedule = {.learning_rate = 1e-2, .warmup = 5, .steps = kSteps};
  run.batch = 3;
  run.accumulate = 2;
  Trainer trainer(model, counting, run);
  Digest losses;
  for (int k = 0; k < kSteps; ++k) {
    const StepRecord step = trainer.step();
    losses.add(step.loss).add(step.gradient_norm).add(step.learning_rate);
  }
  losses.add(trainer.validation_loss(counting, 7));
  bits.add_digest("training/adamw/" + name + "/losses", losses);
  add_parameters(bits, "training/adamw/" + name + "/parameters", model);
}

// The loop that Trainer does not have: two passes a step, clipped, SGD with momentum.
void add_sgd(Bits& bits, const std::string& name, const GptOptions& options) {
  constexpr dim_t kBatch = 2;
  const dim_t tokens = options.context_length;
  const UseThreads threads(bits.threads());
  Gpt model(options);
  GptGradients gradients(model);
  std::vector<SgdState> states(model.parameters().size());
  Tensor rows = Tensor::empty({kBatch, tokens + 1}, DType::i64);
  Digest losses;
  for (int pass = 0; pass < 2 * kSteps; ++pass) {
    if (pass % 2 == 0) gradients.zero();
    for (dim_t b = 0; b < kBatch; ++b) {
      counting(pass * kBatch + b, {rows.mutable_data_as<std::int64_t>() + b * (tokens + 1),
                                   static_cast<std::size_t>(tokens + 1)});
    }
    const Tensor targets = Tensor::copy(rows.slice(1, 1, tokens + 1)).reshaped({kBatch * tokens});
    const LogitsLoss loss = [&](dim_t first, const MutableTensorView& logits) {
      return cross_entropy_share(logits, targets.slice(0, first, first + logits.dim(0)),
                                 2 * kBatch * tokens, logits);
    };
    PassOptions pass_options;
    pass_options.call = static_cast<std::uint64_t>(pass);
    losses.add(model.train_pass(rows.slice(1, 0, tokens), loss, gradients, pass_options));
    if (pass % 2 == 0) continue;
    losses.add(clip_gradient_norm(gradients.tensors(), 1.0));
    model.update_all([&](std::size_t index, const std::string&, const MutableTensorView& p) {
      sgd_step(p, gradients.tensors()[index], states[index],
               {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
    });
  }
  bits.add_digest("training/sgd/" + name + "/losses", losses);
  add_parameters(bits, "training/sgd/" + name + "/parameters", model);
}

}  // namespace

void add_training_bits(Bits& bits) {
  for (const auto& [name, positions] : {std::pair{"learned+untied", PositionKind::learned},
                                        std::pair{"rotary+tied", PositionKind::rotary}}) {
    add_adamw(bits, name, small_model(positions));
    add_sgd(bits, name, small_model(positions));
  }
}

}  // namespace cephalo::testing
