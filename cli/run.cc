
#include <memory>
#include <string>

#include "cephalo/attention/layer/layer_file.h"
#include "cephalo/core/format.h"
#include "cephalo/io/npy.h"
#include "cli/layer_flags.h"
#include "cli/mask_words.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

struct Flags {
  std::string layer, input, output, weights, kv, mask;
  LayerFlags load;
  bool force = false;
};

void run(const Flags& flags) {
  for (const std::string& output : {flags.output, flags.weights}) {
    for (const std::string& input : {flags.layer, flags.input, flags.kv}) {
      if (!output.empty() && !input.empty()) check_output(output, input);
    }
  }
  const LoadOptions options = flags.load.parse();
  CallOptions call;
  if (!flags.mask.empty()) call.mask = mask_of_flag(flags.mask);
  const MultiHeadAttention layer = load_with_warnings(flags.layer, options);
  const Tensor x = read_npy(flags.input);
  const Tensor memory = flags.kv.empty() ? Tensor() : read_npy(flags.kv);
  const TensorView kv = memory;
  if (!flags.kv.empty()) call.kv = &kv;
  const Tensor y = layer(x, call);
  std::string line =
      format_text("{} {} -> {} {}", printable(flags.input), to_tuple_string(x.shape()),
                  printable(flags.output), to_tuple_string(y.shape()));
  write_npy(flags.output, y, flags.force);
  if (!flags.weights.empty()) {
    const Trace trace = layer.trace(x, call);
    const Step& weights = trace.at("weights");
    write_npy(flags.weights, weights.value, flags.force);
    line += format_text(", {} {}", printable(flags.weights), to_tuple_string(weights.shape));
  }
  print(line + "\n");
}

}  // namespace

Verb add_run(Command program) {
  auto flags = std::make_shared<Flags>();
  Command verb = program.add_subcommand("run", "Run a layer from a file on an array");
  verb.add_option("LAYER", flags->layer, "The layer, .safetensors").required();
  verb.add_option("INPUT", flags->input, "The input, .npy: [tokens, d_in] or with a batch")
      .required();
  verb.add_option("-o,--output", flags->output, "Where the result goes, .npy")
      .required()
      .type_name("FILE");
  verb.add_option("--weights", flags->weights, "Where the attention weights go, .npy")
      .type_name("FILE");
  verb.add_option("--kv", flags->kv, "Keys and values come from this array, .npy")
      .type_name("FILE");
  verb.add_option("--mask", flags->mask, "Joined with the layer's own: 'window(127, 0)'")
      .type_name("WORDS");
  flags->load.add_to(verb);
  verb.add_flag("--force", flags->force, "Replace files that exist");
  verb.footer(
      "Examples:\n"
      "  cephalo run layer.safetensors x.npy -o y.npy\n"
      "  cephalo run layer.safetensors x.npy -o y.npy --weights w.npy --mask 'window(127, 0)'\n"
      "  cephalo run model.safetensors x.npy -o y.npy --prefix h.0.");
  return [flags] { run(*flags); };
}

}  // namespace cephalo::cli
