#pragma once

#include <cstdint>
#include <string>

#include "cephalo/model/text_model.h"

#pragma GCC visibility push(default)
namespace cephalo {

// What a page needs to run a model by itself, byte for byte as it is stored.
struct PageModel {
  std::string config_json;
  std::string parameters;  // model.safetensors
};
PageModel builtin_page_model();
// Of a folder; an error where its parameters are in several files.
PageModel load_page_model(const std::string& folder);

// How a page is made.
struct PageOptions {
  std::uint64_t seed = 123;  // of the random tokens that heads are probed with
  int threads = 0;
  // The most bytes of parameters in a page that runs the model: they travel with it.
  std::int64_t most_bytes = 24'000'000;
};

// One HTML file that shows what every head looks at, and runs the model for whatever is typed into
// it: the engine and the parameters are inside, and it asks for nothing outside. An error: the text
// has no token or more than the model reads at once, or the parameters are too many.
std::string page_html(const TextModel& model, const PageModel& files, const std::string& text,
                      const PageOptions& options = {});

}  // namespace cephalo
#pragma GCC visibility pop
