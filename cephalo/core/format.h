#pragma once

// Messages and tables of the library and its program. The formatting itself is compiled once, in
// format.cc: with it in a header every source paid seconds.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace cephalo {

// One argument, valid while what it was made of lives. What is not a number or a text has a
// to_string, which is called only when the argument is written.
class FormatArg {
 public:
  enum class Kind { boolean, character, integer, natural, single, real, text, other };

  template <typename T>
  FormatArg(const T& value) {  // NOLINT(google-explicit-constructor): made from a list of arguments
    if constexpr (std::same_as<T, bool>) {
      kind_ = Kind::boolean;
      natural_ = value ? 1 : 0;
    } else if constexpr (std::same_as<T, char>) {
      kind_ = Kind::character;
      integer_ = value;
    } else if constexpr (std::signed_integral<T>) {
      kind_ = Kind::integer;
      integer_ = value;
    } else if constexpr (std::unsigned_integral<T>) {
      kind_ = Kind::natural;
      natural_ = value;
    } else if constexpr (std::same_as<T, float>) {
      kind_ = Kind::single;
      single_ = value;
    } else if constexpr (std::same_as<T, double>) {
      kind_ = Kind::real;
      real_ = value;
    } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      kind_ = Kind::text;
      text_ = value;
    } else {
      kind_ = Kind::other;
      other_ = {&value, [](const void* it) { return to_string(*static_cast<const T*>(it)); }};
    }
  }

  Kind kind() const { return kind_; }
  std::int64_t integer() const { return integer_; }
  std::uint64_t natural() const { return natural_; }
  float single() const { return single_; }
  double real() const { return real_; }
  std::string_view text() const { return text_; }
  std::string other() const { return other_.write(other_.value); }

 private:
  struct Other {
    const void* value;
    std::string (*write)(const void*);
  };
  Kind kind_;
  union {
    std::int64_t integer_;
    std::uint64_t natural_;
    float single_;
    double real_;
    std::string_view text_;
    Other other_;
  };
};

// A pattern with {} for each of its arguments, checked when it is compiled: their number, and that
// what is written as a number is one. What stands inside of the braces is fmt's: "{:.3g}",
// "{:>{}}", "{0} x {0}".
template <typename... Args>
class FormatPattern {
 public:
  consteval FormatPattern(const char* text)  // NOLINT(google-explicit-constructor)
      : text_(text) {
    check(text_);
  }
  std::string_view text() const { return text_; }

 private:
  static consteval void check(std::string_view text) {
    constexpr std::size_t kCount = sizeof...(Args);
    constexpr bool kNumber[] = {std::is_arithmetic_v<std::remove_cvref_t<Args>>..., false};
    std::size_t next = 0;   // argument of a {} without a number
    std::size_t named = 0;  // those that a number asks for
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text[at] != '{') continue;
      const char first = at + 1 < text.size() ? text[at + 1] : '\0';
      if (first == '{') {
        ++at;
        continue;
      }
      const bool has_number = '0' <= first && first <= '9';
      const std::size_t argument = has_number ? static_cast<std::size_t>(first - '0') : next++;
      if (has_number && argument >= named) named = argument + 1;
      if (argument >= kCount) throw "a pattern has more {} than arguments";
      const std::size_t end = text.find('}', at);
      if (end == text.npos) throw "a pattern has a { without its }";
      if (writes_number(text.substr(at, end - at)) && !kNumber[argument]) {
        throw "a pattern writes as a number what is none";
      }
    }
    if ((next > named ? next : named) != kCount) throw "a pattern has fewer {} than arguments";
  }

  static consteval bool writes_number(std::string_view field) {
    return field.find(':') != field.npos &&
           std::string_view("aefgdxEFGX").find(field.back()) != field.npos;
  }

  std::string_view text_;
};
template <typename... Args>
using Pattern = FormatPattern<std::type_identity_t<Args>...>;  // takes no part in deduction

void append_formatted(std::string& to, std::string_view pattern, const FormatArg* args,
                      std::size_t count);

// Appends to `to`.
template <typename... Args>
void append_text(std::string& to, Pattern<Args...> pattern, const Args&... args) {
  const FormatArg list[] = {FormatArg(args)..., FormatArg(false)};  // never of length 0
  append_formatted(to, pattern.text(), list, sizeof...(Args));
}

// format_text("{} heads of {}", 8, 32) -> "8 heads of 32"
template <typename... Args>
std::string format_text(Pattern<Args...> pattern, const Args&... args) {
  std::string text;
  append_text(text, pattern, args...);
  return text;
}

// The elements of a range, each by `pattern`, with `between` between them.
template <typename Range>
std::string joined(
    const Range& range, std::string_view between,
    Pattern<std::remove_cvref_t<decltype(*std::begin(std::declval<Range>()))>> pattern = "{}") {
  std::string text;
  bool first = true;
  for (const auto& each : range) {
    if (!first) text += between;
    first = false;
    append_text(text, pattern, each);
  }
  return text;
}

}  // namespace cephalo
