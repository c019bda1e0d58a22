#include "cli/train_flags.h"

#include <algorithm>

namespace cephalo::cli {
namespace {

// Those of a model's options that a run may choose.
struct ModelFlag {
  const char* option;
  const char* type;
  const char* help;
};
constexpr ModelFlag kModelFlags[] = {
    {"context_length", "N", "Tokens of a row"},
    {"d_model", "N", "Width of the model"},
    {"num_layers", "N", "Layers"},
    {"num_heads", "N", "Heads of a layer"},
    {"num_kv_heads", "N", "Key and value heads, which heads share (as many as heads)"},
    {"positions", "KIND", "rotary or learned (rotary)"},
    {"dropout", "P", "Dropout in training (0)"},
    {"seed", "N", "Seed of parameters, order and dropout (123)"}};

}  // namespace

std::string flag_of(const char* option) {
  std::string flag = std::string("--") + option;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

const std::string& TrainFlags::typed(const std::string& option) const {
  static const std::string kNothing;
  const auto found = model.find(option);
  return found == model.end() ? kNothing : found->second;
}

void TrainFlags::add_to(Command verb) {
  verb.add_option("FILE", files, "Text to learn from; the last part of each is for validation");
  const auto flag = [&](const char* name, std::string& value, const char* type, const char* help) {
    verb.add_option(name, value, help).type_name(type);
  };
  flag("-o,--out", out, "FOLDER", "The model, its vocabulary, checkpoints and loss curve go here");
  verb.add_flag("--resume", resume, "Continue from the newest checkpoint in the folder");
  verb.add_flag("--previous", previous,
                "With --resume: if the newest checkpoint is damaged, use the one before");

  flag("--steps", steps, "N", "Updates of the parameters");
  flag("--batch", batch, "N", "Rows of one pass");
  flag("--accumulate", accumulate, "N", "Passes of one step (1)");
  flag("--shards", shards, "N",
       "Parts of a pass, added in a fixed order by any number of threads and processes (16, or the "
       "largest power of two below it that divides the batch)");
  for (const ModelFlag& each : kModelFlags) {
    flag(flag_of(each.option).c_str(), model[each.option], each.type, each.help);
  }
  flag("--vocab", vocab, "FOLDER", "vocab.json and merges.txt to use");
  flag("--vocab-size", vocab_size, "N", "Tokens of the vocabulary that is learned from the text");

  flag("--learning-rate", learning_rate, "X", "Peak learning rate (0.003)");
  flag("--warmup", warmup, "N", "Steps in which the rate rises (200, at most a tenth)");
  flag("--min-lr-share", min_lr_share, "X", "The rate ends at this share of its peak (0.1)");
  flag("--weight-decay", weight_decay, "X", "Weight decay of matrices (0.1)");
  flag("--beta2", beta2, "X", "How much of the mean square gradient a step keeps (0.95)");
  flag("--clip", clip, "X", "Largest norm of the gradients; 0: any (1)");

  flag("--repeat-share", repeat_share, "P", "Share of rows that repeat some of their text (0.2)");
  flag("--validation-share", validation_share, "P",
       "Share of each text kept for validation (0.05)");
  flag("--save-every", save_every, "N", "Steps between checkpoints");
  flag("--sample-every", sample_every, "N", "Steps between samples; 0: none");
  flag("--report-every", report_every, "N", "Steps between lines of the report");
  flag("--prompt", prompt, "TEXT", "Text that a sample begins with");
  flag("--threads", threads, "N", "Threads of a process (one per core, shared by processes)");
  flag("--timeout", timeout, "S",
       "Under mpirun: seconds without an answer after which a process counts as lost (300)");
  flag("--export", which_export, "WHICH", "best or last: the step whose model is exported (best)");
  verb.add_flag("--bf16-export", bf16_export, "Save the model in bfloat16");
}

}  // namespace cephalo::cli
