#include "cephalo/mask/mask_text.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>
#include <variant>
#include <vector>

#include "cephalo/core/fail.h"
#include "cephalo/core/format.h"
#include "cephalo/core/number_text.h"
#include "cephalo/core/printable.h"
#include "cephalo/mask/bound_mask.h"

namespace cephalo {
namespace {

constexpr dim_t kDrawnCells = 64;

std::string bound_text(dim_t bound) {
  return bound == unlimited ? "unlimited" : format_text("{}", bound);
}

template <typename... Args>
[[noreturn]] void refuse(Pattern<Args...> pattern, const Args&... args) {
  throw MaskTextError("mask: " + format_text(pattern, args...));
}

// part ('&' part)*; part = name '(' arguments ')'; an argument is a number, a word, a "string" or a
// [list, of, numbers].
class MaskParser {
 public:
  MaskParser(const std::string& text, const MaskTensorSource& tensors)
      : text_(text), tensors_(tensors) {}

  Mask parse() {
    Mask mask = parse_part();
    while (accept('&')) mask = mask & parse_part();
    if (peek() != '\0') complain("'&' or the end");
    return mask;
  }

 private:
  using Argument = std::variant<double, std::string, std::vector<double>>;

  [[noreturn]] void complain(const std::string& expected) const {
    refuse("expected {} at character {} of '{}'", expected, at_ + 1, printable(text_));
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
    const char* end = read_number(begin, text_.data() + text_.size(), &value);
    if (end == begin) complain("a number");
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
      if (more()) refuse("{}() has too many arguments", part_);
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
      if (!more()) refuse("{}() needs more arguments", part_);
      return given_[next_++];
    }
    dim_t whole(double value) const {
      constexpr double kLargest = 9007199254740992.0;  // 2^53: beyond, not every one is a double
      if (std::floor(value) != value || std::abs(value) > kLargest) wrong("a whole number");
      return static_cast<dim_t>(value);
    }
    [[noreturn]] void wrong(const char* expected) const {
      refuse("argument {} of {}() must be {}", next_, part_, expected);
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

  Mask build(const std::string& name, Arguments& a) const {
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
        refuse("positions() takes bottom_right or top_left");
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
      const Tensor q_ids = tensor(name, a);
      return a.more() ? documents(q_ids, tensor(name, a)) : documents(q_ids);
    }
    if (name == "keep") return keep(tensor(name, a));
    if (name == "drop") return drop(tensor(name, a));
    if (name == "bias") return bias(tensor(name, a));
    refuse(
        "unknown part {}(); known are causal, window, lengths, positions, alibi, documents, keep, "
        "drop and bias",
        printable(name));
  }

  Tensor tensor(const std::string& part, Arguments& a) const {
    const std::string name = a.text();
    if (!tensors_) refuse("{}(\"{}\"): no tensors were given", part, printable(name));
    return tensors_(name);
  }

  const std::string& text_;
  const MaskTensorSource& tensors_;
  std::size_t at_ = 0;
};

}  // namespace

std::string Mask::to_string() const {
  std::vector<std::string> parts;
  if (positions) {
    parts.push_back(format_text("positions({}, {})",
                                positions->align == Align::top_left ? "top_left" : "bottom_right",
                                positions->offset));
  }
  if (causal_prefix) {
    const std::vector<dim_t>& prefix = *causal_prefix;
    if (prefix == std::vector<dim_t>{0}) {
      parts.emplace_back("causal()");
    } else if (prefix.size() == 1) {
      parts.push_back(format_text("causal({})", prefix[0]));
    } else {
      parts.push_back(format_text("causal([{}])", joined(prefix, ", ")));
    }
  }
  if (window) {
    parts.push_back(
        format_text("window({}, {})", bound_text(window->left), bound_text(window->right)));
  }
  if (lengths) {
    const std::string kv = format_text("[{}]", joined(lengths->kv, ", "));
    parts.push_back(lengths->q ? format_text("lengths({}, [{}])", kv, joined(*lengths->q, ", "))
                               : format_text("lengths({})", kv));
  }
  if (documents) {
    const std::string kv = cephalo::to_string(documents->kv_ids.shape());
    parts.push_back(
        documents->same_tokens
            ? format_text("documents({})", kv)
            : format_text("documents({}, {})", cephalo::to_string(documents->q_ids.shape()), kv));
  }
  for (const MaskTensor& t : tensors) {
    parts.push_back(format_text("{}({})", name(t.role), cephalo::to_string(t.view.shape())));
  }
  for (const std::vector<float>& slopes : alibi) {
    parts.push_back(format_text("alibi([{}])", joined(slopes, ", ")));
  }
  for (const DevicePart& part : device_parts) {
    parts.push_back(
        format_text("{}: {} on {}", name(part.role), part.view.shape(), part.view.device()));
  }
  return parts.empty() ? "none" : joined(parts, " & ");
}

std::string Mask::draw(dim_t q_tokens, dim_t kv_tokens, dim_t head, dim_t batch) const {
  require(head >= 0 && batch >= 0, "draw: head ({}) and batch ({}) must be >= 0", head, batch);
  // As many sequences and heads as the parts themselves speak of.
  MaskExtent extent{batch + 1, head + 1, q_tokens, kv_tokens};
  const auto at_least = [&](dim_t sequences) { extent.batch = std::max(extent.batch, sequences); };
  if (lengths) at_least(std::ssize(lengths->kv));
  if (lengths && lengths->q) at_least(std::ssize(*lengths->q));
  if (documents) at_least(std::max(documents->q_ids.dim(0), documents->kv_ids.dim(0)));
  if (causal_prefix) at_least(std::ssize(*causal_prefix));
  for (const MaskTensor& t : tensors) {
    if (t.view.rank() >= 3) extent.num_heads = std::max(extent.num_heads, t.view.dim(-3));
    if (t.view.rank() == 4) at_least(t.view.dim(0));
  }
  for (const auto& slopes : alibi) {
    extent.num_heads = std::max(extent.num_heads, static_cast<dim_t>(slopes.size()));
  }
  const BoundMask bound(*this, extent, "draw");
  const dim_t step =
      std::max<dim_t>(1, (std::max(q_tokens, kv_tokens) + kDrawnCells - 1) / kDrawnCells);
  std::string picture = format_text("{}, {} queries x {} keys", to_string(), q_tokens, kv_tokens);
  if (step > 1) picture += format_text(", {} x {} pairs a cell", step, step);
  picture += '\n';
  for (dim_t i = 0; i < q_tokens; i += step) {
    picture += format_text("{:>6} ", i);
    for (dim_t j = 0; j < kv_tokens; j += step) {
      const Tile tile = bound.tile(batch, head, i, std::min(i + step, q_tokens), j,
                                   std::min(j + step, kv_tokens));
      picture += tile == Tile::hidden ? " ." : (tile == Tile::visible ? " #" : " +");
    }
    picture += '\n';
  }
  return picture;
}

Mask parse_mask(const std::string& text, const MaskTensorSource& tensors) {
  return text == "none" ? Mask() : MaskParser(text, tensors).parse();
}

}  // namespace cephalo
