#include "cephalo/io/json.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
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
        return format_text("objects and arrays nested more than {} deep", limits_.depth);
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
class BoundedText {
 public:
  BoundedText(const InputFile& file, std::int64_t begin, std::int64_t bytes, std::string name,
              const JsonLimits& limits)
      : file_(file), at_(begin), end_(begin + bytes), name_(std::move(name)), counter_(limits) {}

  bool ended() { return next_ == good_ && !read_block(); }
  char next() const { return *next_; }
  void advance() { ++next_; }

 private:
  // False at the end of the text.
  bool read_block() {
    if (!refusal_.empty()) throw Error(Error::Kind::value, refusal_);
    if (at_ == end_) return false;
    constexpr std::int64_t kBlock = 1 << 16;
    block_.resize(static_cast<std::size_t>(std::min(kBlock, end_ - at_)));
    file_.read(at_, block_.data(), std::ssize(block_));
    const std::size_t good = count_good();
    at_ += std::ssize(block_);
    if (good == 0) throw Error(Error::Kind::value, refusal_);
    next_ = block_.data();
    good_ = next_ + good;
    return true;
  }

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
  const char* next_ = nullptr;
  const char* good_ = nullptr;  // where what may be taken of the block ends
  std::string refusal_;
};

// The same as the parser wants it: without a text, where every text ends. A stream would bring
// locales along.
class TextIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  TextIterator() = default;
  explicit TextIterator(BoundedText& text) : text_(&text) {}

  char operator*() const { return text_->next(); }
  TextIterator& operator++() {
    text_->advance();
    return *this;
  }
  bool operator==(const TextIterator& end) const { return end.text_ == text_ || text_->ended(); }
  bool operator!=(const TextIterator& end) const { return !(*this == end); }

 private:
  BoundedText* text_ = nullptr;
};

InputFile as_file(std::string_view text, const std::string& name) {
  return {name, std::as_bytes(std::span(text.data(), text.size()))};
}

void check_bytes(std::int64_t bytes, const std::string& name, const JsonLimits& limits) {
  require(bytes <= limits.bytes, "{}: {} bytes are over the limit {}", name, bytes, limits.bytes);
}

// The parser's events, and where it met what is no JSON.
class Forwarder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Forwarder(JsonEvents& to) : to_(to) {}

  bool null() override { return to_.null(); }
  bool boolean(bool value) override { return to_.boolean(value); }
  bool number_integer(number_integer_t value) override { return to_.number_integer(value); }
  bool number_unsigned(number_unsigned_t value) override { return to_.number_unsigned(value); }
  bool number_float(number_float_t value, const string_t& text) override {
    return to_.number_float(value, text);
  }
  bool string(string_t& text) override { return to_.string(text); }
  bool binary(binary_t&) override { return false; }  // JSON has none
  bool start_object(std::size_t) override { return to_.start_object(); }
  bool key(string_t& text) override { return to_.key(text); }
  bool end_object() override { return to_.end_object(); }
  bool start_array(std::size_t) override { return to_.start_array(); }
  bool end_array() override { return to_.end_array(); }
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& error) override {
    constexpr int kOutOfRange = 406;
    if (error.id == kOutOfRange) to_.number_too_large(token);
    failed_at_ = position;
    return false;
  }

  std::size_t failed_at() const { return failed_at_; }  // from 1

 private:
  JsonEvents& to_;
  std::size_t failed_at_ = 0;
};

// Makes a tree of a text.
class TreeBuilder : public JsonEvents {
 public:
  explicit TreeBuilder(const std::string& name) : name_(name) {}

  Json root;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& text) override { return add(std::move(text)); }
  bool start_object() override { return begin(Json::object()); }
  bool key(std::string& text) override {
    open_.back().key = std::move(text);
    return true;
  }
  bool end_object() override { return end(); }
  bool start_array() override { return begin(Json::array()); }
  bool end_array() override { return end(); }
  void number_too_large(const std::string&) override {
    fail(Error::Kind::value, "{}: has a number that is out of range", name_);
  }

 private:
  struct Open {
    Json value;
    std::string key;  // of the member that comes next
  };

  bool add(Json value) {
    if (open_.empty()) {
      root = std::move(value);
    } else if (open_.back().value.is_array()) {
      open_.back().value.push_back(std::move(value));
    } else {
      open_.back().value.add(std::move(open_.back().key), std::move(value));
    }
    return true;
  }
  bool begin(Json value) {
    open_.push_back({std::move(value), {}});
    return true;
  }
  bool end() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(value));
  }

  const std::string& name_;
  std::vector<Open> open_;
};

void append_string(std::string& out, const std::string& text, const JsonStyle& style) {
  using Handler = nlohmann::json::error_handler_t;
  out += nlohmann::json(text).dump(-1, ' ', style.ascii,
                                   style.replace ? Handler::replace : Handler::strict);
}

void append_double(std::string& out, double value) {
  if (!std::isfinite(value)) {  // JSON has no such numbers
    out += "null";
    return;
  }
  char digits[64];
  // By the JSON library, as files have them since the first: std::to_chars rounds some otherwise.
  out.append(digits, nlohmann::detail::to_chars(std::begin(digits), std::end(digits), value));
}

class JsonWriter {
 public:
  JsonWriter(std::string& out, const JsonStyle& style) : out_(out), style_(style) {}

  void write(const Json& json) {
    if (json.is_null()) {
      out_ += "null";
    } else if (json.is_boolean()) {
      out_ += json.as_bool() ? "true" : "false";
    } else if (json.is_unsigned()) {
      out_ += std::to_string(json.as_uint64());
    } else if (json.is_whole()) {
      out_ += std::to_string(json.as_int64());
    } else if (json.is_number()) {
      append_double(out_, json.as_double());
    } else if (json.is_string()) {
      append_string(out_, json.as_string(), style_);
    } else if (json.is_array()) {
      write_list(json.elements(), "[]", [this](const Json& element) { write(element); });
    } else {
      write_list(json.members(), "{}", [this](const JsonMember& member) {
        append_string(out_, member.name, style_);
        out_ += style_.indent < 0 ? ":" : ": ";
        write(member.value);
      });
    }
  }

 private:
  template <typename List, typename WriteOne>
  void write_list(const List& list, const char* brackets, WriteOne&& write_one) {
    out_ += brackets[0];
    ++depth_;
    for (std::size_t k = 0; k < list.size(); ++k) {
      if (k > 0) out_ += ',';
      begin_line();
      write_one(list[k]);
    }
    --depth_;
    if (!list.empty()) begin_line();
    out_ += brackets[1];
  }
  void begin_line() {
    if (style_.indent < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(depth_ * style_.indent), ' ');
  }

  std::string& out_;
  const JsonStyle style_;
  int depth_ = 0;
};

}  // namespace

void read_json(const InputFile& file, std::int64_t begin, std::int64_t bytes,
               const std::string& name, const JsonLimits& limits, JsonEvents& events) {
  check_bytes(bytes, name, limits);
  BoundedText text(file, begin, bytes, name, limits);
  Forwarder forwarder(events);
  if (nlohmann::json::sax_parse(TextIterator(text), TextIterator(), &forwarder)) return;
  fail(Error::Kind::value, kNotJson, name,
       begin + static_cast<std::int64_t>(forwarder.failed_at()));
}

void read_json(std::string_view text, const std::string& name, const JsonLimits& limits,
               JsonEvents& events) {
  read_json(as_file(text, name), 0, std::ssize(text), name, limits, events);
}

Json parse_json(std::string_view text, const std::string& name, const JsonLimits& limits) {
  TreeBuilder builder(name);
  read_json(text, name, limits, builder);
  builder.root.sort_members();
  return std::move(builder.root);
}

bool is_json(std::string_view text) {
  return nlohmann::json::accept(text.begin(), text.end());
}

std::string Json::dump(const JsonStyle& style) const {
  std::string out;
  JsonWriter(out, style).write(*this);
  return out;
}

std::string quoted_json(const std::string& text, const std::string& name) {
  try {
    return Json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    fail(Error::Kind::value, "{}: {}: is not valid UTF-8", name, shown(text));
  }
}

}  // namespace cephalo
