#include "cephalo/io/json.h"

#include <algorithm>
#include <climits>
#include <istream>
#include <span>
#include <streambuf>
#include <utility>
#include <vector>

#include "cephalo/core/fail.h"
#include "cephalo/core/printable.h"

namespace cephalo {
namespace {

constexpr const char* kNotJson = "{}: not valid UTF-8 JSON at byte {}";

// What a byte of a text may be too much of.
enum class Excess { none, nul, depth, values, length };

// Counts what a text holds without reading it: strings, words, brackets. It knows just enough of
// JSON for that; whether the text is JSON is for the parser to say.
class JsonCounter {
 public:
  explicit JsonCounter(const JsonLimits& limits) : limits_(limits) {}

  Excess add(char c) {
    if (c == '\0') return Excess::nul;
    if (in_string_) return add_to_string(c);
    switch (c) {
      case ' ':
      case '\t':
      case '\n':
      case '\r':
      case ',':
      case ':':
        in_word_ = false;
        return Excess::none;
      case '}':
      case ']':
        in_word_ = false;
        --depth_;
        return Excess::none;
      case '{':
      case '[':
        in_word_ = false;
        return ++depth_ > limits_.depth ? Excess::depth : begin_value();
      case '"':
        in_word_ = false;
        in_string_ = true;
        return begin_value();
      default:
        if (in_word_) return lengthen_value();
        in_word_ = true;
        return begin_value();
    }
  }

  std::string describe(Excess excess) const {
    switch (excess) {
      case Excess::depth:
        return format_text("more than {} objects and arrays in one another", limits_.depth);
      case Excess::values:
        return format_text("more than {} names and values", limits_.values);
      case Excess::length:
        return format_text("a name or value of more than {} bytes", limits_.string_bytes);
      default:
        return "not valid UTF-8 JSON";
    }
  }

 private:
  Excess add_to_string(char c) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      return Excess::none;  // it ends the string and is no part of it
    }
    return lengthen_value();
  }
  Excess begin_value() {
    length_ = 0;
    return ++values_ > limits_.values ? Excess::values : Excess::none;
  }
  Excess lengthen_value() {
    return ++length_ > limits_.string_bytes ? Excess::length : Excess::none;
  }

  const JsonLimits limits_;
  bool in_string_ = false;
  bool escaped_ = false;
  bool in_word_ = false;     // of a number, true, false, null or anything else
  std::int64_t length_ = 0;  // of that string or word so far
  std::int64_t values_ = 0;
  std::int64_t depth_ = 0;  // of the brackets that are open
};

// A part of a file as the parser takes it: in blocks, and only what stands before a byte that is
// refused. The error comes when the parser asks for that byte, so mistakes before it come first.
class BoundedText : public std::streambuf {
 public:
  BoundedText(const InputFile& file, std::int64_t begin, std::int64_t bytes, std::string name,
              const JsonLimits& limits)
      : file_(file), at_(begin), end_(begin + bytes), name_(std::move(name)), counter_(limits) {}

 protected:
  int_type underflow() override {
    if (!refusal_.empty()) throw Error(Error::Kind::value, refusal_);
    if (at_ == end_) return traits_type::eof();
    constexpr std::int64_t kBlock = 1 << 16;
    block_.resize(static_cast<std::size_t>(std::min(kBlock, end_ - at_)));
    file_.read(at_, block_.data(), std::ssize(block_));
    const std::size_t good = count_good();
    at_ += std::ssize(block_);
    if (good == 0) throw Error(Error::Kind::value, refusal_);
    setg(block_.data(), block_.data(), block_.data() + good);
    return traits_type::to_int_type(block_.front());
  }

 private:
  // Bytes of the block before the first one that is refused.
  std::size_t count_good() {
    for (std::size_t k = 0; k < block_.size(); ++k) {
      const Excess excess = counter_.add(block_[k]);
      if (excess == Excess::none) continue;
      refusal_ = format_text("{}: {} at byte {}", name_, counter_.describe(excess),
                             at_ + static_cast<std::int64_t>(k) + 1);
      return k;
    }
    return block_.size();
  }

  const InputFile& file_;
  std::int64_t at_;
  const std::int64_t end_;
  const std::string name_;
  JsonCounter counter_;
  std::vector<char> block_;
  std::string refusal_;
};

InputFile as_file(std::string_view text, const std::string& name) {
  return {name, std::as_bytes(std::span(text))};
}

void check_bytes(std::int64_t bytes, const std::string& name, const JsonLimits& limits) {
  require(bytes <= limits.bytes, "{}: {} bytes are over the limit {}", name, bytes, limits.bytes);
}

}  // namespace

bool JsonEvents::parse_error(std::size_t position, const std::string&,
                             const nlohmann::detail::exception&) {
  failed_at_ = position;
  return false;
}

void read_json(const InputFile& file, std::int64_t begin, std::int64_t bytes,
               const std::string& name, const JsonLimits& limits, JsonEvents& events) {
  check_bytes(bytes, name, limits);
  BoundedText text(file, begin, bytes, name, limits);
  std::istream stream(&text);
  if (nlohmann::json::sax_parse(stream, &events)) return;
  fail(Error::Kind::value, kNotJson, name, begin + static_cast<std::int64_t>(events.failed_at()));
}

void read_json(std::string_view text, const std::string& name, const JsonLimits& limits,
               JsonEvents& events) {
  read_json(as_file(text, name), 0, std::ssize(text), name, limits, events);
}

nlohmann::json parse_json(std::string_view text, const std::string& name,
                          const JsonLimits& limits) {
  check_bytes(std::ssize(text), name, limits);
  const InputFile file = as_file(text, name);
  BoundedText bounded(file, 0, file.size(), name, limits);
  std::istream stream(&bounded);
  try {
    return nlohmann::json::parse(stream);
  } catch (const nlohmann::json::parse_error& error) {
    fail(Error::Kind::value, kNotJson, name, error.byte);
  } catch (const nlohmann::json::out_of_range&) {
    fail(Error::Kind::value, "{}: has a number larger than any number can be", name);
  }
}

std::string shown_json(const nlohmann::json& value) {
  return to_string(shown(value.dump()));
}

JsonMembers::JsonMembers(const nlohmann::json& object, std::string name, std::int64_t most)
    : object_(object), name_(std::move(name)), most_(most) {
  require(object.is_object(), "{}: is not a JSON object", name_);
}

const nlohmann::json& JsonMembers::at(const char* key) const {
  const auto found = object_.find(key);
  require(found != object_.end(), "{}: {}: is missing", name_, key);
  return *found;
}

void JsonMembers::refuse(const char* key, const std::string& rule) const {
  fail(Error::Kind::value, "{}: {}: {} must be {}", name_, key, shown_json(at(key)), rule);
}

std::int64_t JsonMembers::whole(const char* key, std::int64_t most) const {
  const nlohmann::json& value = at(key);
  const bool fits =
      value.is_number_unsigned() && value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
  if (!fits) refuse(key, format_text("a whole number from 0 to {}", most));
  return value.get<std::int64_t>();
}

void JsonMembers::operator()(const char* key, bool& to) const {
  if (!at(key).is_boolean()) refuse(key, "true or false");
  to = at(key).get<bool>();
}

void JsonMembers::operator()(const char* key, int& to) const {
  to = static_cast<int>(whole(key, std::min<std::int64_t>(most_, INT_MAX)));
}

void JsonMembers::operator()(const char* key, std::int64_t& to) const {
  to = whole(key, most_);
}

void JsonMembers::operator()(const char* key, std::uint64_t& to) const {
  if (!at(key).is_number_unsigned()) refuse(key, "a whole number from 0 to 2^64 - 1");
  to = at(key).get<std::uint64_t>();
}

// The parser refuses numbers that no double holds, and JSON has neither NaN nor infinity.
void JsonMembers::operator()(const char* key, double& to) const {
  if (!at(key).is_number()) refuse(key, "a number");
  to = at(key).get<double>();
}

void JsonMembers::operator()(const char* key, std::string& to) const {
  if (!at(key).is_string()) refuse(key, "a string");
  to = at(key).get<std::string>();
}

void JsonMembers::operator()(const char* key, std::vector<std::string>& to) const {
  const nlohmann::json& list = at(key);
  const bool fits = list.is_array() && std::all_of(list.begin(), list.end(),
                                                   [](const auto& one) { return one.is_string(); });
  if (!fits) refuse(key, "a list of strings");
  to = list.get<std::vector<std::string>>();
}

std::string quoted_json(const std::string& text, const std::string& name) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    fail(Error::Kind::value, "{}: {}: is not valid UTF-8", name, shown(text));
  }
}

}  // namespace cephalo
