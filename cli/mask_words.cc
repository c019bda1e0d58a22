#include "cli/mask_words.h"

#include <cctype>
#include <charconv>
#include <utility>
#include <variant>
#include <vector>

#include "cephalo/core/format.h"
#include "cephalo/io/npy.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

// part ('&' part)*; part = name '(' arguments ')'; an argument is a number, a word, a "string" or a
// [list, of, numbers].
class MaskParser {
 public:
  explicit MaskParser(const std::string& text) : text_(text) {}

  Mask parse() {
    Mask mask = parse_part();
    while (accept('&')) mask = mask & parse_part();
    if (peek() != '\0') complain("'&' or the end");
    return mask;
  }

 private:
  using Argument = std::variant<double, std::string, std::vector<double>>;

  [[noreturn]] void complain(const std::string& expected) const {
    throw UsageError(format_text("--mask: expected {} at character {} of '{}'", expected, at_ + 1,
                                 printable(text_)));
  }

  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }

  std::string parse_word() {
    peek();
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) {
      ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  double parse_number() {
    peek();
    double value = 0.0;
    const char* begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc()) complain("a number");
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }

  Argument parse_argument() {
    const char first = peek();
    if (first == '"' || first == '\'') {
      const std::size_t end = text_.find(first, at_ + 1);
      if (end == std::string::npos) complain("the end of a string");
      std::string value = text_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
      return value;
    }
    if (accept('[')) {
      std::vector<double> list;
      while (!accept(']')) {
        list.push_back(parse_number());
        if (!accept(',') && peek() != ']') complain("',' or ']'");
      }
      return list;
    }
    if (std::isalpha(static_cast<unsigned char>(first)) != 0) return parse_word();
    return parse_number();
  }

  std::vector<Argument> parse_arguments() {
    if (!accept('(')) complain("'('");
    std::vector<Argument> arguments;
    while (!accept(')')) {
      arguments.push_back(parse_argument());
      if (!accept(',') && peek() != ')') complain("',' or ')'");
    }
    return arguments;
  }

  // The arguments of one part, taken one by one.
  class Arguments {
   public:
    Arguments(std::string part, std::vector<Argument> given)
        : part_(std::move(part)), given_(std::move(given)) {}

    bool more() const { return next_ < given_.size(); }
    void end() const {
      if (more()) throw UsageError(format_text("--mask: {}() has too many arguments", part_));
    }
    dim_t integer() {
      const Argument& a = take();
      if (const auto* word = std::get_if<std::string>(&a);
          word != nullptr && *word == "unlimited") {
        return unlimited;
      }
      const auto* value = std::get_if<double>(&a);
      if (value == nullptr) wrong("a whole number");
      return whole(*value);
    }
    std::vector<dim_t> integers() {
      std::vector<dim_t> list;
      for (const double value : numbers()) list.push_back(whole(value));
      return list;
    }
    std::vector<double> numbers() {
      const auto* list = std::get_if<std::vector<double>>(&take());
      if (list == nullptr) wrong("a [list] of numbers");
      return *list;
    }
    std::string text() {
      const auto* value = std::get_if<std::string>(&take());
      if (value == nullptr) wrong("a \"string\"");
      return *value;
    }
    bool next_is_list() const {
      return more() && std::holds_alternative<std::vector<double>>(given_[next_]);
    }

   private:
    const Argument& take() {
      if (!more()) throw UsageError(format_text("--mask: {}() needs more arguments", part_));
      return given_[next_++];
    }
    dim_t whole(double value) const {
      if (value != static_cast<double>(static_cast<dim_t>(value))) wrong("a whole number");
      return static_cast<dim_t>(value);
    }
    [[noreturn]] void wrong(const char* expected) const {
      throw UsageError(
          format_text("--mask: argument {} of {}() must be {}", next_, part_, expected));
    }

    std::string part_;
    std::vector<Argument> given_;
    std::size_t next_ = 0;
  };

  Mask parse_part() {
    const std::string name = parse_word();
    if (name.empty()) complain("the name of a mask part");
    Arguments arguments(name, parse_arguments());
    Mask mask = build(name, arguments);
    arguments.end();
    return mask;
  }

  static Mask build(const std::string& name, Arguments& a) {
    if (name == "causal") {
      if (!a.more()) return causal();
      return a.next_is_list() ? causal(a.integers()) : causal(a.integer());
    }
    if (name == "window") {
      const dim_t left = a.integer();
      return window(left, a.integer());
    }
    if (name == "lengths") {
      std::vector<dim_t> kv = a.integers();
      return a.more() ? lengths(std::move(kv), a.integers()) : lengths(std::move(kv));
    }
    if (name == "positions") {
      const std::string align = a.text();
      if (align != "bottom_right" && align != "top_left") {
        throw UsageError("--mask: positions() takes \"bottom_right\" or \"top_left\"");
      }
      const Align side = align == "top_left" ? Align::top_left : Align::bottom_right;
      return positions(side, a.more() ? a.integer() : 0);
    }
    if (name == "alibi") {
      std::vector<float> slopes;
      for (const double slope : a.numbers()) slopes.push_back(static_cast<float>(slope));
      return alibi(std::move(slopes));
    }
    if (name == "documents") {
      const Tensor q_ids = read_npy(a.text());
      return a.more() ? documents(q_ids, read_npy(a.text())) : documents(q_ids);
    }
    if (name == "keep") return keep(read_npy(a.text()));
    if (name == "drop") return drop(read_npy(a.text()));
    if (name == "bias") return bias(read_npy(a.text()));
    throw UsageError(format_text(
        "--mask: there is no {}(); there are causal, window, lengths, positions, alibi, documents, "
        "keep, drop and bias",
        printable(name)));
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

}  // namespace

Mask parse_mask(const std::string& text) {
  return MaskParser(text).parse();
}

}  // namespace cephalo::cli
