#pragma once

// Inside the library and its program only: whoever links cephalo needs no JSON of their own.
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cephalo {

struct JsonMember;

// How a value is written.
struct JsonStyle {
  int indent = -1;       // spaces of a level; -1: all in one line
  bool ascii = false;    // other characters as \uXXXX
  bool replace = false;  // what is not UTF-8 becomes U+FFFD; otherwise it is an error
};

// A JSON value. The JSON library stays behind json.cc: a source that includes it takes seconds more
// to compile. Members keep the order in which they were added.
class Json {
 public:
  Json() noexcept;  // null
  Json(std::nullptr_t) noexcept : Json() {}
  Json(std::same_as<bool> auto value) : Json(of_bool(value)) {}  // not from a pointer
  Json(std::signed_integral auto value) : Json(of_int(value)) {}
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) Json(T value) : Json(of_uint(value)) {}
  Json(std::floating_point auto value) : Json(of_double(value)) {}
  Json(const char* text);
  Json(std::string text);
  template <typename T>
  Json(const std::vector<T>& elements) : Json(array()) {
    for (const T& element : elements) push_back(element);
  }
  Json(std::initializer_list<JsonMember> members);  // {{"name", value}, ...}
  static Json array();
  static Json object();

  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();

  bool is_null() const { return holds<std::nullptr_t>(); }
  bool is_boolean() const { return holds<bool>(); }
  bool is_number() const { return is_whole() || holds<double>(); }
  bool is_whole() const { return holds<std::int64_t>() || is_unsigned(); }  // 1, but not 1.0
  bool is_unsigned() const { return holds<std::uint64_t>(); }  // of a text: whole and not negative
  bool is_string() const { return holds<std::string>(); }
  bool is_array() const { return holds<std::vector<Json>>(); }
  bool is_object() const { return holds<std::vector<JsonMember>>(); }

  // What it was asked to be above; a number as the other kinds of numbers, too.
  bool as_bool() const;
  std::int64_t as_int64() const;
  std::uint64_t as_uint64() const;
  double as_double() const;
  const std::string& as_string() const;
  const std::vector<Json>& elements() const;
  const std::vector<JsonMember>& members() const;

  const Json* find(std::string_view name) const;  // null where it is no object that has it
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  const Json& at(std::string_view name) const;  // an error where there is none

  Json& operator[](std::string_view name);  // added where there is none
  void add(std::string name, Json value);   // without asking whether there is one
  Json& operator[](std::size_t element);
  void erase(std::string_view name);
  void push_back(Json element);
  // By their names, here and in what is inside; of those with one name the last stays.
  void sort_members();

  std::string dump(const JsonStyle& style = {}) const;

 private:
  static Json of_bool(bool value);
  static Json of_int(std::int64_t value);
  static Json of_uint(std::uint64_t value);
  static Json of_double(double value);

  template <typename T>
  bool holds() const {
    return std::holds_alternative<T>(value_);
  }

  std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string,
               std::vector<Json>, std::vector<JsonMember>>
      value_;
};

struct JsonMember {
  std::string name;
  Json value;
};

}  // namespace cephalo
