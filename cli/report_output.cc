#include "cli/report_output.h"

#include "cephalo/core/format.h"
#include "cephalo/io/file.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

constexpr std::size_t kTerminalRows = 24;
constexpr std::size_t kPictureRows = 64;

void check_file(const char* flag, const std::string& path, const char* ending, bool json) {
  if (path.empty()) return;
  if (!path.ends_with(ending)) {
    throw UsageError(format_text("{}: '{}' does not end in {}, which is what it writes", flag,
                                 printable(path), ending));
  }
  if (json) throw UsageError(format_text("{}: writes a file; omit --json, which prints", flag));
}

}  // namespace

void ReportOutput::add_to(Command verb, const char* picture_help) {
  verb.add_option("--png", png, picture_help).type_name("FILE");
  verb.add_option("--svg", svg, "The same with text that can be selected and searched")
      .type_name("FILE");
  verb.add_flag("--force", force, "Replace FILE if it exists");
  verb.add_flag("--json", json, "The same as JSON, for other programs");
}

void ReportOutput::check() const {
  check_file("--png", png, ".png", json);
  check_file("--svg", svg, ".svg", json);
}

void ReportOutput::show(const std::function<ReportPage(std::size_t most_rows)>& page,
                        const std::function<std::string()>& as_json) const {
  if (!png.empty() || !svg.empty()) {
    const Picture picture = draw_page(page(kPictureRows));
    if (!png.empty()) save_picture(png, picture.png(), picture, force);
    if (!svg.empty()) save_picture(svg, picture.svg(), picture, force);
  } else {
    print(json ? as_json() : to_text(page(kTerminalRows), terminal_style()));
  }
}

void save_picture(const std::string& path, const std::string& bytes, const Picture& picture,
                  bool force) {
  write_file(path, bytes, force);
  print(format_text("{}: {} x {} pixels, {} bytes\n", printable(path), picture.width(),
                    picture.height(), bytes.size()));
}

}  // namespace cephalo::cli
