#pragma once

#include <functional>
#include <string>

#include "cephalo/view/report_page.h"
#include "cli/command.h"

namespace cephalo::cli {

// Where a report goes: onto the terminal, into a picture, or to another program as JSON.
struct ReportOutput {
  std::string png, svg;
  bool json = false, force = false;

  void add_to(Command verb, const char* picture_help);
  void check() const;  // a UsageError where a picture's name has another ending

  // page: of at most so many rows; only what is asked for is made
  void show(const std::function<ReportPage(std::size_t most_rows)>& page,
            const std::function<std::string()>& as_json) const;
};

// Writes a picture and says how large it is.
void save_picture(const std::string& path, const std::string& bytes, const Picture& picture,
                  bool force);

}  // namespace cephalo::cli
