
#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <string>

#include "cephalo/core/format.h"
#include "cli/terminal.h"
#include "cli/tour_tables.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

struct Stop {
  const char* name;
  const char* about;
  std::string (*table)();
};
constexpr std::array kStops = {
    Stop{"strides", "view, transpose and contiguous on twelve numbers", tour_strides},
    Stop{"matrices", "query, key and value matrices, number by number", tour_matrices},
    Stop{"scale", "why scores are divided by sqrt(head_dim)", tour_scale},
    Stop{"mask", "what the causal mask does", tour_mask},
    Stop{"heads", "why several heads", tour_heads},
    Stop{"split", "one projection, split, or a list of heads: times", tour_split},
    Stop{"classes", "beginner and production class side by side: times", tour_classes},
    Stop{"buffers", "what is a parameter and what is not", tour_buffers}};

std::string overview() {
  std::string out = "A tour of attention, with numbers that are computed as you ask.\n\n";
  out += "  cephalo trace            the six steps on \"The cat sat on the mat\"\n";
  out += "  cephalo trace --picture  a width cut into heads, and what the axes do\n";
  for (const Stop& stop : kStops) {
    out += format_text("  {:<24} {}\n", format_text("cephalo tour {}", stop.name), stop.about);
  }
  out += "  cephalo look TEXT        what the heads of a trained model look at\n";
  out += "  cephalo trace TEXT       one of these heads by hand\n";
  out += "  cephalo exercise         the steps to write yourself, with hints\n";
  out += "  cephalo quiz             ten questions, answered by computing\n";
  return out + "\ndocs/tour.md takes the same path, with explanations.\n";
}

void tour(const std::string& wanted) {
  if (wanted.empty()) return print(overview());
  const auto* stop =
      std::find_if(kStops.begin(), kStops.end(), [&](const Stop& s) { return wanted == s.name; });
  if (stop == kStops.end()) {
    std::string known;
    for (const Stop& s : kStops) known += (known.empty() ? "" : ", ") + std::string(s.name);
    throw UsageError(format_text("NAME: '{}' is not one of {}", printable(wanted), known));
  }
  const auto* next = std::next(stop);
  print(stop->table() + (next == kStops.end()
                             ? "\nnext: cephalo look \"The cat sat on the mat\"\n"
                             : format_text("\nnext: cephalo tour {}\n", next->name)));
}

}  // namespace

Verb add_tour(Command program) {
  auto wanted = std::make_shared<std::string>();
  Command verb = program.add_subcommand("tour", "Why attention is built as it is, in numbers");
  verb.add_option("NAME", *wanted, "One table of the tour; default: the list of them");
  verb.footer("Examples:\n  cephalo tour\n  cephalo tour scale");
  return [wanted] { tour(*wanted); };
}

}  // namespace cephalo::cli
