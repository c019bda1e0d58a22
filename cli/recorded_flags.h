#pragma once

#include <string>
#include <vector>

#include "cephalo/view/page.h"
#include "cli/command.h"

namespace cephalo::cli {

// The flags of a page that keeps one text, and the writing of it.
struct RecordedFlags {
  std::string most = "64MB", heads;

  void add_to(Command verb);
  bool given() const { return most != "64MB" || !heads.empty(); }
  // A UsageError before the model runs.
  RecordedOptions options() const;
  // Says how large it is going to be, then writes it.
  void write(const LookReport& report, const std::string& path, bool force) const;
};

// "64MB", "1.5GB", "900KB", "4096": a flag's value in bytes
std::int64_t parse_size(const std::string& flag, const std::string& text);

}  // namespace cephalo::cli
