
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cephalo/attention/layer/layer_file.h"
#include "cephalo/core/format.h"
#include "cephalo/model/builtin.h"
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

bool is_model(const std::string& input) {
  std::error_code ignored;
  return input == "builtin" || std::filesystem::is_directory(input, ignored);
}

// A model once more, for texts of another length.
void convert_model(const Flags& flags) {
  const std::optional<dim_t> wanted = flags.load.parse().settings.context_length;
  if (!flags.form.empty() || !wanted) {
    throw UsageError(format_text(
        "{}: is a model, which is written with another --context-length; --to is for a layer",
        printable(flags.input)));
  }
  const TextModel model = flags.input == "builtin" ? builtin_model() : load_text_model(flags.input);
  const dim_t own = model.gpt.options().context_length;
  save_gpt(model.gpt, flags.output,
           {.replace = flags.force,
            .bos_token_id = model.config.bos_token_id,
            .eos_token_id = model.config.eos_token_id,
            .add_bos_token = model.config.add_bos_token,
            .context_length = wanted,
            .trained_context_length = model.config.trained_context_length});
  model.tokenizer.save(flags.output, flags.force);
  const dim_t trained = model.config.trained_context_length.value_or(own);
  const std::string note =
      *wanted > trained ? format_text("; beyond {} it was not trained", trained) : "";
  print(format_text("{} -> {}: reads {} tokens instead of {}{}\n", printable(flags.input),
                    printable(flags.output), *wanted, own, note));
}

void convert(const Flags& flags) {
  if (is_model(flags.input)) return convert_model(flags);
  if (flags.form.empty()) {
    throw UsageError("--to: is missing: the FORM that the layer is written in");
  }
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
  verb.add_option("INPUT", flags->input,
                  "The layer, .safetensors; or a model, by its folder or as builtin")
      .required();
  verb.add_option("OUTPUT", flags->output, "Where it goes, .safetensors; a model: a folder")
      .required();
  verb.add_option("--to", flags->form, "separate, raw, heads, linear, joined, torch or gpt2")
      .type_name("FORM");
  flags->load.add_to(verb);
  verb.add_flag("--with-mask", flags->with_mask, "Also write the mask that PyTorch's classes hold");
  verb.add_flag("--zero-bias", flags->zero_bias, "Write zeros where the form always has biases");
  verb.add_flag("--allow-rotary", flags->allow_rotary,
                "Rotary positions go into the metadata, which only cephalo reads");
  verb.add_flag("--force", flags->force, "Replace a file that exists");
  verb.footer(
      "A model is written for texts of another --context-length, if its positions are rotary.\n"
      "No tensor is invented or dropped: a conversion loses nothing or is refused.\n"
      "For a layer in a model's folder, config.json gives the heads and the positions.\n"
      "Examples:\n"
      "  cephalo convert layer.safetensors joined.safetensors --to joined\n"
      "  cephalo convert model.safetensors book.safetensors --to separate --prefix h.0.\n"
      "  cephalo convert builtin long --context-length 2048");
  return [flags] { convert(*flags); };
}

}  // namespace cephalo::cli
