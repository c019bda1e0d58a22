#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cephalo/model/text_model.h"
#include "cephalo/view/look.h"

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
// How many these would be, in the types in which they are stored.
std::int64_t stored_parameter_bytes(const std::string& folder);

// How a page is made that runs the model.
struct PageOptions {
  std::uint64_t seed = 123;  // of the random tokens that heads are probed with
  int threads = 0;
  // The most bytes of parameters in such a page: they travel with it.
  std::int64_t most_bytes = 24'000'000;
};

// One HTML file that shows what every head looks at, and runs the model for whatever is typed into
// it: the engine and the parameters are inside, and it asks for nothing outside. An error: the text
// has no token or more than the model or the page takes at once, or the parameters are too many.
std::string page_html(const TextModel& model, const PageModel& files, const std::string& text,
                      const PageOptions& options = {});

// The longest text that such a page shows: it makes the weights of all heads after every key.
dim_t longest_live_text(const GptOptions& model);
// Why a text cannot be shown by a page that runs the model; "" where it can.
std::string why_not_live(const TextModel& model, std::int64_t parameter_bytes, dim_t tokens,
                         const PageOptions& options = {});

// What a page keeps of one text that a model has read: the heads in full, or some of them.
struct RecordedOptions {
  std::int64_t most_bytes = 64'000'000;  // of the page
  // Where not all heads fit: which ones are kept in full. None: as many of heads_to_show as fit.
  std::vector<HeadPlace> heads = {};
};

// How a recorded page keeps the heads.
enum class RecordedForm {
  inputs,  // what each layer was given, W_q and W_k: q and k are made when a head is chosen
  heads,   // q and k of every head: smaller for a short text
  partly   // q and k of some heads, and of the others the strongest keys of every row
};
inline constexpr dim_t kStrongestKeys = 8;  // so many

// What recorded_page_html is going to write.
struct RecordedPlan {
  RecordedForm form = RecordedForm::heads;
  std::int64_t bytes = 0;            // of the page
  std::int64_t bytes_in_full = 0;    // of the page with all heads in full
  std::vector<HeadPlace> full = {};  // with RecordedForm::partly: these are
  bool pooled = false;               // maps are pooled, and rows are made one by one
};
// An error: the chosen heads do not fit, or none would.
RecordedPlan plan_recorded_page(const LookReport& report, const RecordedOptions& options = {});

// One HTML file that shows what every head looked at in this text. It does not run the model, and
// so needs few of its parameters, whatever its size.
std::string recorded_page_html(const LookReport& report, const RecordedPlan& plan);

}  // namespace cephalo
#pragma GCC visibility pop
