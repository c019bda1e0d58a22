
#include <memory>
#include <string>

#include "cephalo/attention/layer/layer_file.h"
#include "cephalo/core/format.h"
#include "cli/layer_flags.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

struct Flags {
  std::string input, output, form;
  LayerFlags load;
  bool with_mask = false, zero_bias = false, allow_rotary = false, force = false;
};

void convert(const Flags& flags) {
  const SaveOptions save{.form = parse_form("--to", flags.form),
                         .with_mask = flags.with_mask,
                         .zero_bias = flags.zero_bias,
                         .allow_rotary = flags.allow_rotary,
                         .replace = flags.force};
  check_output(flags.output, flags.input);
  const MultiHeadAttention layer = load_with_warnings(flags.input, flags.load.parse());
  save_layer(layer, flags.output, save);
  print(format_text("{} ({}) -> {} ({}), {} parameters\n", printable(flags.input),
                    name(layer.options().form), printable(flags.output), name(*save.form),
                    layer.parameter_count()));
}

}  // namespace

Verb add_convert(Command program) {
  auto flags = std::make_shared<Flags>();
  Command verb = program.add_subcommand("convert", "Write a layer under the names of another form");
  verb.add_option("INPUT", flags->input, "The layer, .safetensors").required();
  verb.add_option("OUTPUT", flags->output, "Where it goes, .safetensors").required();
  verb.add_option("--to", flags->form, "separate, raw, heads, linear, joined, torch or gpt2")
      .required()
      .type_name("FORM");
  flags->load.add_to(verb);
  verb.add_flag("--with-mask", flags->with_mask, "Also write the mask that PyTorch's classes hold");
  verb.add_flag("--zero-bias", flags->zero_bias, "Write zeros where the form always has biases");
  verb.add_flag("--allow-rotary", flags->allow_rotary,
                "Rotary positions go into the metadata, which only cephalo reads");
  verb.add_flag("--force", flags->force, "Replace a file that exists");
  verb.footer(
      "No tensor is invented or dropped: a conversion loses nothing or is refused.\n"
      "For a layer in a model's folder, config.json gives the heads and the positions.\n"
      "Examples:\n"
      "  cephalo convert layer.safetensors joined.safetensors --to joined\n"
      "  cephalo convert model.safetensors book.safetensors --to separate --prefix h.0.");
  return [flags] { convert(*flags); };
}

}  // namespace cephalo::cli
