#pragma once

// Messages and tables of the library and its program. The formatting itself is compiled once, in
// format.cc: with it in a header every source paid seconds.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

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

// A pattern with {} for each of its arguments, counted when it is compiled. What stands inside of
// the braces is fmt's: "{:.3g}", "{:>{}}", "{0} x {0}".
template <std::size_t count>
class FormatPattern {
 public:
  consteval FormatPattern(const char* text)  // NOLINT(google-explicit-constructor)
      : text_(text) {
    if (arguments(text_) != count) throw "a pattern needs one argument for each {}";
  }
  std::string_view text() const { return text_; }

 private:
  // {} counts up, {2} names its argument.
  static consteval std::size_t arguments(std::string_view text) {
    std::size_t found = 0;
    std::size_t named = 0;
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text[at] != '{') continue;
      const char next = at + 1 < text.size() ? text[at + 1] : '\0';
      if (next == '{') {
        ++at;
      } else if ('0' <= next && next <= '9') {
        const auto past = static_cast<std::size_t>(next - '0') + 1;
        named = past > named ? past : named;
      } else {
        ++found;
      }
    }
    return found > named ? found : named;
  }
  std::string_view text_;
};

void append_formatted(std::string& to, std::string_view pattern, const FormatArg* args,
                      std::size_t count);

// Appends to `to`.
template <typename... Args>
void append_text(std::string& to, FormatPattern<sizeof...(Args)> pattern, const Args&... args) {
  const FormatArg list[] = {FormatArg(args)..., FormatArg(false)};  // never of length 0
  append_formatted(to, pattern.text(), list, sizeof...(Args));
}

// format_text("{} heads of {}", 8, 32) -> "8 heads of 32"
template <typename... Args>
std::string format_text(FormatPattern<sizeof...(Args)> pattern, const Args&... args) {
  std::string text;
  append_text(text, pattern, args...);
  return text;
}

// The elements of a range, with `between` between them.
template <typename Range>
std::string joined(const Range& range, std::string_view between) {
  std::string text;
  bool first = true;
  for (const auto& each : range) {
    if (!first) text += between;
    first = false;
    append_text(text, "{}", each);
  }
  return text;
}

}  // namespace cephalo
