#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cephalo/train/adamw.h"
#include "cephalo/train/trainer.h"
#include "cephalo/train/trainer_json.h"

namespace cephalo {

// What a trainer holds: trainer.cc changes it, trainer_save.cc writes and reads it.
struct Trainer::State {
  State(Gpt& the_model, RowSource the_rows, const TrainerOptions& the_options)
      : model(the_model),
        rows(std::move(the_rows)),
        options(the_options),
        gradients(the_model),
        parameters(the_model.parameters()) {
    for (const GptParameter& p : parameters) {
      AdamWState& moments = adamw.emplace_back();
      moments.mean = Tensor::zeros(p.value.shape(), p.value.dtype());
      moments.mean_square = Tensor::zeros(p.value.shape(), p.value.dtype());
    }
  }

  double accumulate_gradients();
  void update(double learning_rate);
  std::vector<std::pair<std::string, TensorView>> tensors() const;

  Gpt& model;
  RowSource rows;
  TrainerOptions options;
  TrainerProgress progress;
  TrainingHistory history;
  GptGradients gradients;
  std::vector<GptParameter> parameters;
  std::vector<AdamWState> adamw;  // in the order of the parameters
  GptWorkspace workspace;
  std::string notes = "{}";
};

void check_trainer_options(const TrainerOptions& options, const GptOptions& model);

}  // namespace cephalo
