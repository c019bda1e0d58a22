#pragma once

#include <nanobind/nanobind.h>

namespace cephalo::python {

namespace nb = nanobind;
using namespace nb::literals;  // NOLINT: "q"_a names an argument

// One file each, named after the header that it binds.
void bind_array(nb::module_& m);
void bind_errors();
void bind_parallel(nb::module_& m);
void bind_random(nb::module_& m);
void bind_mask(nb::module_& m);
void bind_kv_cache(nb::module_& m);
void bind_attend(nb::module_& m);
void bind_attend_backward(nb::module_& m);
void bind_attend_second(nb::module_& m);
void bind_plan(nb::module_& m);
void bind_ring(nb::module_& m);
void bind_weights(nb::module_& m);
void bind_multi_head(nb::module_& m);
void bind_ladder(nb::module_& m);
void bind_gradients(nb::module_& m);
void bind_layer_file(nb::module_& m);
void bind_gradcheck(nb::module_& m);
void bind_exercise(nb::module_& m);

// text
void bind_word_tokenizer(nb::module_& m);
void bind_bpe(nb::module_& m);
void bind_bpe_trainer(nb::module_& m);
void bind_token_file(nb::module_& m);
void bind_windows(nb::module_& m);

// embed, model
void bind_embedding(nb::module_& m);
void bind_pipeline(nb::module_& m);
void bind_quiz(nb::module_& m);
void bind_layer_norm(nb::module_& m);
void bind_mlp(nb::module_& m);
void bind_gpt_gradients(nb::module_& m);
void bind_gpt(nb::module_& m);
void bind_builtin(nb::module_& m);
void bind_generate(nb::module_& m);

// effects
void bind_run(nb::module_& m);
void bind_kept_pass(nb::module_& m);
void bind_circuits(nb::module_& m);

// train
void bind_loss(nb::module_& m);
void bind_adamw(nb::module_& m);
void bind_sgd(nb::module_& m);
void bind_clip(nb::module_& m);
void bind_schedule(nb::module_& m);
void bind_history(nb::module_& m);
void bind_run_folder(nb::module_& m);
void bind_trainer(nb::module_& m);
void bind_recipe(nb::module_& m);

// view
void bind_recording(nb::module_& m);
void bind_head_metrics(nb::module_& m);
void bind_head_picture(nb::module_& m);
void bind_head_trace(nb::module_& m);
void bind_look(nb::module_& m);
void bind_reports(nb::module_& m);

}  // namespace cephalo::python
