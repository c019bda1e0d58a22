#include "bindings/attention/trace.h"
#include "bindings/bindings.h"
#include "cephalo/core/version.h"

NB_MODULE(_cephalo_of_main, m) {
  using namespace cephalo::python;  // NOLINT: the functions below
  m.doc() = "The engine of cephalo.";
  // A PyTorch graph that is alive when Python ends holds functions of ours; that is no leak.
  nb::set_leak_warnings(false);
  m.attr("__version__") = CEPHALO_VERSION;
  bind_errors();
  bind_array(m);
  bind_parallel(m);
  bind_random(m);
  bind_mask(m);
  bind_kv_cache(m);
  bind_attend(m);
  bind_attend_backward(m);
  bind_attend_second(m);
  bind_plan(m);
  bind_ring(m);
  bind_weights(m);
  bind_multi_head(m);
  bind_trace(m);
  bind_gradients(m);
  bind_ladder(m);
  bind_layer_file(m);
  bind_gradcheck(m);
  bind_exercise(m);
  bind_word_tokenizer(m);
  bind_bpe(m);
  bind_bpe_trainer(m);
  bind_token_file(m);
  bind_windows(m);
  bind_embedding(m);
  bind_pipeline(m);
  bind_quiz(m);
  bind_layer_norm(m);
  bind_mlp(m);
  bind_gpt_gradients(m);
  bind_gpt(m);
  bind_builtin(m);
  bind_generate(m);
  bind_run(m);
  bind_loss(m);
  bind_adamw(m);
  bind_sgd(m);
  bind_clip(m);
  bind_schedule(m);
  bind_history(m);
  bind_run_folder(m);
  bind_trainer(m);
  bind_recipe(m);
  bind_kept_pass(m);
  bind_circuits(m);
  bind_recording(m);
  bind_head_metrics(m);
  bind_head_picture(m);
  bind_head_trace(m);
  bind_look(m);
  bind_reports(m);
}

// nanobind keeps one set of types for the process. A second interpreter that imports them takes
// them along when it ends, from under the first.
extern "C" NB_EXPORT PyObject* PyInit__cephalo();
extern "C" PyObject* PyInit__cephalo() {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
    PyErr_SetString(PyExc_ImportError,
                    "cephalo works in the main interpreter only, not in a subinterpreter");
    return nullptr;
  }
  return PyInit__cephalo_of_main();
}
