#include "cephalo/core/format.h"

#include <iterator>
#include <stdexcept>

// fmt 10 marks its exception visible, and a shared library of ours would show it. A pattern is
// checked when it is compiled (format.h): what gets here is a mistake of ours.
#define FMT_THROW(exception) throw std::logic_error("a pattern does not fit its arguments")
#include <fmt/args.h>
#include <fmt/format.h>

namespace cephalo {
namespace {

using Store = fmt::dynamic_format_arg_store<fmt::format_context>;

void push(Store& store, const FormatArg& arg) {
  switch (arg.kind()) {
    case FormatArg::Kind::boolean:
      return store.push_back(arg.natural() != 0);
    case FormatArg::Kind::character:
      return store.push_back(static_cast<char>(arg.integer()));
    case FormatArg::Kind::integer:
      return store.push_back(arg.integer());
    case FormatArg::Kind::natural:
      return store.push_back(arg.natural());
    case FormatArg::Kind::single:
      return store.push_back(arg.single());
    case FormatArg::Kind::real:
      return store.push_back(arg.real());
    case FormatArg::Kind::text:
      return store.push_back(fmt::string_view(arg.text().data(), arg.text().size()));
    case FormatArg::Kind::other:
      return store.push_back(arg.other());
  }
}

}  // namespace

void append_formatted(std::string& to, std::string_view pattern, const FormatArg* args,
                      std::size_t count) {
  Store store;
  store.reserve(count, 0);
  for (std::size_t n = 0; n < count; ++n) push(store, args[n]);
  fmt::vformat_to(std::back_inserter(to), fmt::string_view(pattern.data(), pattern.size()), store);
}

}  // namespace cephalo
