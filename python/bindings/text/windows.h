#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "bindings/arrays/arrays.h"
#include "cephalo/text/windows.h"

namespace cephalo::python {

// Windows, and whose arrays batches become: those of the ids that they were made from.
struct WindowsOfText {
  WindowsOfText(std::shared_ptr<const TokenSource> source, const WindowOptions& options,
                Kind ids_kind)
      : windows(std::make_shared<Windows>(std::move(source), options)), kind(ids_kind) {}
  std::shared_ptr<const Windows> windows;
  Kind kind;
};

// A corpus of the caller's, and whose arrays rows of it become.
struct TokensIn {
  std::shared_ptr<const TokenSource> tokens;
  Kind kind;
};

// A TokenFile, or ids in memory; of those the vocabulary may be left open.
TokensIn tokens_in(const nb::object& source, std::optional<std::int64_t> vocab_size,
                   const char* function, const char* name);

}  // namespace cephalo::python
