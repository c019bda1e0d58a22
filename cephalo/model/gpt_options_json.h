#pragma once

#include <string>

#include "cephalo/io/json.h"
#include "cephalo/model/gpt_options.h"

// Options as our own JSON has them, under their own names; not for users of the library.
namespace cephalo {

// A seed that is not set is null.
Json to_json(const GptOptions& options);

// All of them must be there, but those that came later than the oldest file. name: for messages
GptOptions gpt_options_from_json(const Json& json, const std::string& name, std::int64_t most);

}  // namespace cephalo
