#include "cli/recorded_flags.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cephalo/core/error.h"
#include "cephalo/core/format.h"
#include "cephalo/effects/change.h"
#include "cephalo/io/file.h"
#include "cli/numbers.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

double megabytes(std::int64_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

std::vector<HeadPlace> parse_heads(const std::string& text) {
  std::vector<HeadPlace> places;
  if (text.empty()) return places;
  const UsageError refused(
      format_text("--heads: takes heads such as L3H1,L0H4, not '{}'", printable(text)));
  try {
    for (const Change& change : parse_changes(text, ChangeKind::zero)) {
      if (change.section != ModelSection::head) throw refused;
      places.push_back({change.layer, change.head});
    }
  } catch (const Error&) {
    throw refused;
  }
  return places;
}

std::string what_is_kept(const LookReport& report, const RecordedPlan& plan,
                         const std::string& most) {
  const std::string sizes = format_text("{} layers of {} heads, {} tokens", report.num_layers(),
                                        report.num_heads(), report.tokens.size());
  if (plan.form != RecordedForm::partly) {
    return format_text("recording {}: {:.1f} MB", sizes, megabytes(plan.bytes));
  }
  std::string named;
  for (std::size_t n = 0; n < std::min<std::size_t>(plan.full.size(), 6); ++n) {
    named += format_text("{}L{}H{}", n == 0 ? "" : ", ", plan.full[n].layer, plan.full[n].head);
  }
  if (plan.full.size() > 6) named += format_text(" and {} more", plan.full.size() - 6);
  return format_text(
      "recording {}: {:.1f} MB. All heads in full would take {:.1f} MB, more than --max-size {}: "
      "in full {}; of the others the map and the {} strongest keys of every token",
      sizes, megabytes(plan.bytes), megabytes(plan.bytes_in_full), most,
      named.empty() ? "none" : named, kStrongestKeys);
}

}  // namespace

std::int64_t parse_size(const std::string& flag, const std::string& text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}};
  std::string number = text;
  double unit = 1.0;
  for (const auto& [word, bytes] : kUnits) {
    if (!text.ends_with(word)) continue;
    number = text.substr(0, text.size() - word.size());
    unit = bytes;
  }
  double value = 0.0;
  try {
    value = parse_positive(flag, number);
  } catch (const UsageError&) {
    throw UsageError(format_text("{}: a size such as 64MB, not '{}'", flag, printable(text)));
  }
  return static_cast<std::int64_t>(std::min(std::round(value * unit), 1e15));
}

void RecordedFlags::add_to(Command verb) {
  verb.add_option("--max-size", most,
                  "Of a recorded page: above it, not every head is kept in full")
      .type_name("SIZE")
      .show_default();
  verb.add_option("--heads", heads, "Those that are then, as in L3H1,L0H4").type_name("HEADS");
}

RecordedOptions RecordedFlags::options() const {
  return {.most_bytes = parse_size("--max-size", most), .heads = parse_heads(heads)};
}

void RecordedFlags::write(const LookReport& report, const std::string& path, bool force) const {
  const RecordedPlan plan = plan_recorded_page(report, options());
  say(what_is_kept(report, plan, most));
  const std::string html = recorded_page_html(report, plan);
  write_file(path, html, force);
  print(format_text("{}: {:.1f} MB, recorded: {} layers of {} heads, for this text ({} tokens)\n",
                    printable(path), megabytes(std::ssize(html)), report.num_layers(),
                    report.num_heads(), report.tokens.size()));
}

}  // namespace cephalo::cli
