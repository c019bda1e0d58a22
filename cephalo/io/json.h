#pragma once

// Inside the library and its program only: whoever links cephalo needs no JSON of their own.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cephalo/io/file.h"
#include "cephalo/io/json_value.h"

namespace cephalo {

// How much JSON a file may hold. A text is refused at the byte where it passes a limit, before
// anything is made of what follows. A byte that is 0 is refused in the same way: the JSON library
// takes it for the end of the text.
struct JsonLimits {
  std::int64_t bytes;         // of the whole text
  std::int64_t values;        // names, strings, numbers, words, objects and arrays
  std::int64_t string_bytes;  // of one of them, as it is written
  int depth = 64;             // of objects and arrays in one another
};

// For what is small where it is honest: settings, the state of a run.
inline constexpr JsonLimits kSmallJson = {std::int64_t{8} << 20, 200'000, std::int64_t{1} << 20};

// Takes a text event by event: nothing is made that its reader does not ask for. What returns
// false ends the reading with an error.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;

  virtual bool null() = 0;
  virtual bool boolean(bool value) = 0;
  virtual bool number_integer(std::int64_t value) = 0;    // a negative one
  virtual bool number_unsigned(std::uint64_t value) = 0;  // any other that is whole and fits
  virtual bool number_float(double value, const std::string& text) = 0;
  virtual bool string(std::string& text) = 0;
  virtual bool start_object() = 0;
  virtual bool key(std::string& text) = 0;
  virtual bool end_object() = 0;
  virtual bool start_array() = 0;
  virtual bool end_array() = 0;
  virtual void number_too_large(const std::string& /*text*/) {}  // for any double
};

// Reads `bytes` of a file from `begin` on, a block at a time. `name` begins the messages, which
// count bytes from the beginning of the file.
void read_json(const InputFile& file, std::int64_t begin, std::int64_t bytes,
               const std::string& name, const JsonLimits& limits, JsonEvents& events);
void read_json(std::string_view text, const std::string& name, const JsonLimits& limits,
               JsonEvents& events);

// A whole text as a tree, for what has at most kSmallJson's size.
// Members are in the order of their names.
Json parse_json(std::string_view text, const std::string& name,
                const JsonLimits& limits = kSmallJson);

bool is_json(std::string_view text);

// A value as a message shows it.
std::string shown_json(const Json& value);

// Reads members of an object: each must be there and be what the variable holds, or the error names
// it, what it is and what it must be. Whole numbers are from 0 to `most`, others finite. The object
// must live as long; `name` begins the messages.
class JsonMembers {
 public:
  JsonMembers(const Json& object, std::string name, std::int64_t most = std::int64_t{1} << 53);

  const Json& at(const char* key) const;
  void operator()(const char* key, bool& to) const;
  void operator()(const char* key, int& to) const;
  void operator()(const char* key, std::int64_t& to) const;
  void operator()(const char* key, std::uint64_t& to) const;  // any that fits
  void operator()(const char* key, double& to) const;
  void operator()(const char* key, std::string& to) const;
  void operator()(const char* key, std::vector<std::string>& to) const;

  // "name: key: value must be " and the rule
  [[noreturn]] void refuse(const char* key, const std::string& rule) const;

 private:
  std::int64_t whole(const char* key, std::int64_t most) const;

  const Json& object_;
  std::string name_;
  std::int64_t most_;
};

// Text in the quotes and escapes of JSON; an error where it is not UTF-8.
std::string quoted_json(const std::string& text, const std::string& name);

}  // namespace cephalo
