#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/text_input.h"

namespace cephalo::cli {

// `cephalo trace TEXT`: one head of a trained model by hand.
struct ModelTraceFlags {
  TextInput input;
  ModelFlags model;
  std::string layer = "0", token, top = "10", threads = "0";
  bool no_begin = false;

  void add_to(Command verb);
  bool given() const;  // a text, or any flag that is a model's

 private:
  std::vector<Flag> own_;
};

// What it has in common with the trace of an untrained layer.
struct SharedTraceFlags {
  std::string head;
  std::string batch;
  bool batch_given = false;  // every line of the text is a sequence
  bool explain = false, json = false;
};

void trace_model(const ModelTraceFlags& flags, const SharedTraceFlags& shared);

}  // namespace cephalo::cli
