
#include <algorithm>
#include <memory>
#include <string>

#include "cephalo/core/cpu.h"
#include "cephalo/core/format.h"
#include "cephalo/core/parallel.h"
#include "cephalo/core/version.h"
#include "cephalo/io/json_value.h"
#include "cli/bench_rows.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

struct Flags {
  std::string threads;
  bool quick = false, json = false;
};

struct Report {
  std::string isa;
  std::vector<int> threads;
  std::vector<BenchSection> sections;
};

// The peak of a thread count is the best reading of the whole run: a machine that others use gives
// less now and then, never more.
void fill_in_shares(BenchSection& kernels, const BenchLine& before, const BenchLine& after) {
  for (std::size_t k = 0; k < before.values.size(); ++k) {
    double peak = std::max(before.values[k].value, after.values[k].value);
    for (const BenchLine& line : kernels.lines) peak = std::max(peak, line.values[k].limit);
    for (BenchLine& line : kernels.lines) line.values[k].share = line.values[k].value / peak;
  }
}

Report measure_all(const BenchSettings& settings) {
  Report report{name(current_isa()), settings.threads, {}};
  const BenchLine before = bench_fma(settings, "FMA in registers");
  report.sections.push_back(bench_memory(settings));
  BenchSection kernels = bench_kernels(settings);
  report.sections.push_back(bench_decode(settings));
  report.sections.push_back(bench_calls(settings));
  const BenchLine after = bench_fma(settings, "FMA in registers, at the end");
  show_status("");
  fill_in_shares(kernels, before, after);
  report.sections.insert(report.sections.begin() + 1, std::move(kernels));
  report.sections.insert(report.sections.begin(), {"arithmetic", {before, after}});
  return report;
}

std::string as_text(const Report& report) {
  constexpr std::size_t kCell = 20;
  std::size_t width = 0;
  for (const BenchSection& section : report.sections) {
    for (const BenchLine& line : section.lines) width = std::max(width, display_width(line.name));
  }
  std::string out = format_text("cephalo {}, {}\n", CEPHALO_VERSION, report.isa);
  std::string head(width + 2, ' ');
  for (const int count : report.threads) {
    head += fit(format_text("{:>9} thread{}", count, count == 1 ? "" : "s"), kCell);
  }
  head.erase(head.find_last_not_of(' ') + 1);
  out += head + "\n";
  for (const BenchSection& section : report.sections) {
    out += bold(section.title) + "\n";
    for (const BenchLine& line : section.lines) {
      std::string text = "  " + fit(line.name, width);
      for (const BenchValue& cell : line.values) {
        const std::string share = cell.share > 0 ? format_text("{:6.2f}", cell.share) : "";
        text += fit(format_text("{:9.1f} {:<4}{}", cell.value, line.unit, share), kCell);
      }
      text.erase(text.find_last_not_of(' ') + 1);
      out += text + "\n";
    }
  }
  return out;
}

std::string as_json(const Report& report) {
  Json sections = Json::array();
  for (const BenchSection& section : report.sections) {
    Json lines = Json::array();
    for (const BenchLine& line : section.lines) {
      Json values = Json::array();
      for (std::size_t k = 0; k < line.values.size(); ++k) {
        Json value = {{"threads", report.threads[k]}, {"value", line.values[k].value}};
        if (line.values[k].share > 0) value["share"] = line.values[k].share;
        values.push_back(value);
      }
      lines.push_back({{"name", line.name}, {"unit", line.unit}, {"values", values}});
    }
    sections.push_back({{"title", section.title}, {"lines", lines}});
  }
  const Json json = {{"version", CEPHALO_VERSION}, {"isa", report.isa}, {"sections", sections}};
  return json.dump({.indent = 1}) + "\n";
}

void bench(const Flags& flags) {
  BenchSettings settings{{1}, flags.quick};
  const int count =
      flags.threads.empty()
          ? threads()
          : static_cast<int>(parse_integer("--threads", flags.threads, 1, kMaxThreads));
  if (count > 1) settings.threads.push_back(count);
  const Report report = measure_all(settings);
  print(flags.json ? as_json(report) : as_text(report));
}

}  // namespace

Verb add_bench(Command program) {
  auto flags = std::make_shared<Flags>();
  Command verb = program.add_subcommand("bench", "Measure this machine, and the kernels on it");
  verb.add_option("--threads", flags->threads, "Threads to measure besides one; default: all")
      .type_name("N");
  verb.add_flag("--quick", flags->quick, "Small sizes: what the table looks like, in seconds");
  verb.add_flag("--json", flags->json, "The same as JSON");
  verb.footer(
      "The environment variable CEPHALO_ISA chooses another instruction set.\n"
      "Examples:\n"
      "  cephalo bench\n"
      "  CEPHALO_ISA=avx2 cephalo bench --threads 8 --json");
  return [flags] { bench(*flags); };
}

}  // namespace cephalo::cli
