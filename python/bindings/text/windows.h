#pragma once

#include <memory>
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

}  // namespace cephalo::python
