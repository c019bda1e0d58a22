
#include <memory>
#include <string>
#include <vector>

#include "cephalo/core/format.h"
#include "cephalo/io/file.h"
#include "cephalo/io/npy.h"
#include "cephalo/text/piece_text.h"
#include "cephalo/view/head_picture.h"
#include "cephalo/view/look_json.h"
#include "cli/look_effects.h"
#include "cli/look_numbers.h"
#include "cli/look_views.h"
#include "cli/model_flags.h"
#include "cli/model_text.h"
#include "cli/numbers.h"
#include "cli/recorded_flags.h"
#include "cli/report_output.h"
#include "cli/stop_signals.h"
#include "cli/terminal.h"
#include "cli/text_input.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

struct Flags {
  TextInput input;
  std::string layer, head, token, png, svg, html, csv, npy;
  std::string seed = "123", top = "5", threads = "0";
  ModelFlags model;
  bool all = false, json = false, force = false, no_begin = false;
  MapOptions maps;
  EffectsFlags effects;
  RecordedFlags recording;
};

// Which heads are asked for; checked before the model runs.
struct Selection {
  std::optional<dim_t> layer, head;
};

Selection selection_of(const Flags& flags, const GptOptions& model) {
  Selection chosen;
  if (!flags.layer.empty()) {
    chosen.layer = parse_integer("--layer", flags.layer, 0, model.num_layers - 1);
  }
  if (!flags.head.empty()) {
    if (!chosen.layer) {
      throw UsageError(
          format_text("--head: needs a layer too, --layer 0 to {}", model.num_layers - 1));
    }
    chosen.head = parse_integer("--head", flags.head, 0, model.num_heads - 1);
  }
  return chosen;
}

void check_output(const char* flag, const std::string& path, const char* ending,
                  const Flags& flags) {
  if (path.empty()) return;
  if (!flags.token.empty()) {
    throw UsageError(format_text("{}: shows heads, not one token; omit --token", flag));
  }
  if (!path.ends_with(ending)) {
    throw UsageError(
        format_text("{}: '{}' does not end in {}, which is what it writes", flag, path, ending));
  }
  if (flags.json)
    throw UsageError(format_text("{}: writes a file; omit --json, which prints", flag));
}

void check_flags(const Flags& flags) {
  if (!flags.token.empty() && !flags.head.empty()) {
    throw UsageError("--token: shows its row in every head; omit --head");
  }
  check_output("--png", flags.png, ".png", flags);
  check_output("--svg", flags.svg, ".svg", flags);
  check_output("--html", flags.html, ".html", flags);
  check_output("--csv", flags.csv, ".csv", flags);
  check_output("--npy", flags.npy, ".npy", flags);
  if (!flags.html.empty() && (!flags.layer.empty() || !flags.maps.plain())) {
    throw UsageError("--html: shows every head, and all maps; omit what chooses among them");
  }
  for (const auto& [flag, path] : {std::pair{"--csv", &flags.csv}, {"--npy", &flags.npy}}) {
    if (!path->empty() && flags.head.empty()) {
      throw UsageError(format_text("{}: writes one head; choose it with --layer and --head", flag));
    }
  }
  if (flags.html.empty() && flags.recording.given()) {
    throw UsageError("--max-size and --heads: are for a page; pass --html FILE");
  }
  flags.recording.options();
}

void save_pictures(const Flags& flags, const LookReport& report, const Selection& chosen) {
  const PictureText text{on_one_line(report.text), report.model, report.labels()};
  std::vector<HeadReport> heads = report.heads;
  if (chosen.layer) {
    std::erase_if(heads, [&](const HeadReport& h) { return h.layer != *chosen.layer; });
  }
  const Picture picture =
      chosen.head ? draw_head(*report.recording, report.at({*chosen.layer, *chosen.head}), text,
                              report.maps)
                  : draw_heads(*report.recording, heads, text, report.maps);
  if (!flags.png.empty()) save_picture(flags.png, picture.png(), picture, flags.force);
  if (!flags.svg.empty()) save_picture(flags.svg, picture.svg(), picture, flags.force);
}

void save_numbers(const Flags& flags, const LookReport& report, const HeadPlace& place) {
  const auto tokens = std::ssize(report.tokens);
  const auto said = [&](const std::string& path) {
    print(format_text("{}: {} x {} weights\n", printable(path), tokens, tokens));
  };
  if (!flags.csv.empty()) {
    write_file(flags.csv, weights_csv(report, place), flags.force);
    said(flags.csv);
  }
  if (!flags.npy.empty()) {
    write_npy(flags.npy, weights_array(report, place), flags.force);
    said(flags.npy);
  }
}

// What is asked for as a file; false: nothing.
bool save_files(const Flags& flags, const LookReport& report, const Selection& chosen) {
  const bool picture = !flags.png.empty() || !flags.svg.empty();
  const bool numbers = !flags.csv.empty() || !flags.npy.empty();
  if (picture) save_pictures(flags, report, chosen);
  if (numbers) save_numbers(flags, report, {*chosen.layer, *chosen.head});
  return picture || numbers;
}

// Heads whose weights belong into the JSON.
std::vector<HeadPlace> places_of(const Flags& flags, const LookReport& report,
                                 const Selection& chosen) {
  std::vector<HeadPlace> places;
  if (!flags.all && !chosen.layer) return places;
  for (const HeadReport& head : report.heads) {
    const bool wanted = (!chosen.layer || head.layer == *chosen.layer) &&
                        (!chosen.head || head.head == *chosen.head);
    if (wanted) places.push_back({head.layer, head.head});
  }
  return places;
}

void check_effects(const Flags& flags) {
  const std::pair<const char*, bool> others[] = {
      {"--layer", !flags.layer.empty()},  {"--token", !flags.token.empty()},
      {"--html", !flags.html.empty()},    {"--csv", !flags.csv.empty()},
      {"--npy", !flags.npy.empty()},      {"--all", flags.all},
      {"--no-sink", flags.maps.no_first}, {"--value-weighted", flags.maps.value_weighted}};
  for (const auto& [flag, given] : others) {
    if (given) {
      throw UsageError(format_text("{}: shows where heads look; omit it to see effects", flag));
    }
  }
}

void show_effects(const Flags& flags, const TextModel& model, const std::string& text,
                  const LookOptions& options) {
  check_effects(flags);
  const EffectsReport report = flags.effects.measure(look_model(model), text, options);
  const ReportOutput output{flags.png, flags.svg, flags.json, flags.force};
  output.show([&](std::size_t rows) { return page_of(report, rows); },
              [&] { return to_json(report); });
  if (const int signal = EffectsFlags::stopped_by(); signal != 0) {
    throw ExitStatus{StopSignals::exit_status(signal)};
  }
}

void look(const Flags& flags) {
  check_flags(flags);
  const int threads = static_cast<int>(parse_integer("--threads", flags.threads, 0, 1024));
  const dim_t top = parse_integer("--top", flags.top, 1, 100);
  const std::string text = flags.input.read();
  TextModel model = flags.model.load();
  const Selection chosen = selection_of(flags, model.gpt.options());
  check_text(text, !flags.no_begin, model);
  model.gpt.prepare();
  const LookOptions options{.begin = !flags.no_begin,
                            .top = top,
                            .seed = parse_seed("--seed", flags.seed),
                            .threads = threads,
                            .maps = flags.maps};
  if (flags.effects.given()) return show_effects(flags, model, text, options);
  const LookReport report = look_at(look_model(model), text, options);
  if (!flags.html.empty()) return flags.recording.write(report, flags.html, flags.force);
  if (save_files(flags, report, chosen)) return;
  if (flags.json) return print(to_json(report, places_of(flags, report, chosen)));
  const TerminalStyle style = terminal_style();
  if (!flags.token.empty()) {
    print(look_at_token(report, find_token(report.tokens, flags.token), chosen.layer, style));
  } else if (chosen.head) {
    print(look_at_head(report, {*chosen.layer, *chosen.head}, style));
  } else if (chosen.layer || flags.all) {
    print(look_at_heads(report, chosen.layer, style));
  } else {
    print(look_at_model(report, style));
  }
}

}  // namespace

Verb add_look(Command program) {
  auto flags = std::make_shared<Flags>();
  Command verb =
      program.add_subcommand("look", "What every head of a model looks at, and what comes next");
  flags->input.add_to(verb, "TEXT", "The text to run through the model; - reads it from stdin");
  flags->model.add_to(verb);
  const auto option = [&](const char* name, std::string& value, const char* type,
                          const char* help) {
    verb.add_option(name, value, help).type_name(type).show_default();
  };
  option("--layer", flags->layer, "N", "The maps and numbers of this layer's heads");
  option("--head", flags->head, "N", "With --layer: this head in full, weight by weight");
  verb.add_flag("--all", flags->all, "Every head: its map, its numbers, its links");
  option("--token", flags->token, "TOKEN", "What this token looks at in every head; or its index");
  verb.add_flag("--no-sink", flags->maps.no_first,
                "Maps without the first token, where heads rest that find nothing");
  verb.add_flag("--value-weighted", flags->maps.value_weighted,
                "Maps of weight times the size of what it moves");
  option("--top", flags->top, "N", "How many next tokens to show");
  option("--png", flags->png, "FILE", "A picture of the heads, or of the one of --layer --head");
  option("--svg", flags->svg, "FILE", "The same with text that can be selected and searched");
  option("--html", flags->html, "FILE",
         "A page to open in a browser, with every head of this text");
  flags->recording.add_to(verb);
  option("--csv", flags->csv, "FILE", "The weights of the head of --layer --head, as a table");
  option("--npy", flags->npy, "FILE", "The same as an array for NumPy: float32, [tokens, tokens]");
  verb.add_flag("--force", flags->force, "Replace FILE if it exists");
  verb.add_flag("--json", flags->json, "The same as JSON; --all and --layer add the weights");
  verb.add_flag("--no-begin", flags->no_begin,
                "Do not prepend <|endoftext|>, the token that starts a text");
  flags->effects.add_to(verb);
  option("--seed", flags->seed, "N", "Seed of the random tokens that probe the heads");
  option("--threads", flags->threads, "N", "0: one per core");
  verb.footer(
      "A label names a pattern of a head's weights; --effects measures what the head does.\n"
      "  previous   looks at the token before           (mean weight on this text)\n"
      "  sink       looks at the first token\n"
      "  current    looks at itself\n"
      "  diffuse    looks at all tokens equally         (entropy over its largest possible)\n"
      "  induction  looks at what followed the same token earlier\n"
      "  duplicate  looks at the same token earlier     (both on random tokens, repeated)\n"
      "Examples:\n"
      "  cephalo look \"The cat sat on the mat\"\n"
      "  cephalo look \"The cat sat on the mat\" --token sat\n"
      "  cephalo look \"The cat sat on the mat\" --layer 0 --head 3\n"
      "  cephalo look \"The cat sat on the mat\" --png heads.png\n"
      "  cephalo look \"The cat sat on the mat\" --effects\n"
      "  cephalo look \"The cat sat on the mat\" --ablate L3H1,L3H0 --with mean\n"
      "  cephalo look --file page.txt --layer 3");
  return [flags] { look(*flags); };
}

}  // namespace cephalo::cli
