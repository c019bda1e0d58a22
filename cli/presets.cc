#include "cephalo/model/presets.h"

#include <string>

#include "cephalo/core/format.h"
#include "cephalo/model/gpt.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

void print_presets() {
  std::string table =
      format_text("{:<12} {:<16} {:>6} {:>7} {:>5} {:>8} {:>7} {:>15}\n", "preset", "also called",
                  "layers", "d_model", "heads", "head_dim", "context", "parameters");
  for (const ModelSizes& sizes : model_sizes()) {
    const std::string also = *sizes.other_name == '\0'
                                 ? sizes.parameters
                                 : format_text("{}, {}", sizes.other_name, sizes.parameters);
    table += format_text("{:<12} {:<16} {:>6} {:>7} {:>5} {:>8} {:>7} {:>15}\n", sizes.name, also,
                         sizes.num_layers, sizes.d_model, sizes.num_heads,
                         sizes.d_model / sizes.num_heads, sizes.context_length,
                         with_commas(parameter_count(gpt_preset(sizes.name))));
  }
  print(table);
}

}  // namespace

Verb add_presets(Command program) {
  Command verb = program.add_subcommand("presets", "The sizes of GPT-2 and GPT-3, by name");
  verb.footer(
      "The numbers are the papers' own, except for two of GPT-3's that do not multiply out:\n"
      "24 heads of 128 in a width of 2048 are 16 here, and a width of 5140 is 5120.\n"
      "Example:\n"
      "  cephalo trace --preset gpt2-xl");
  return [] { print_presets(); };
}

}  // namespace cephalo::cli
