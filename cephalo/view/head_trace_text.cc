
#include <algorithm>
#include <cmath>
#include <numeric>

#include "cephalo/attention/reference/trace.h"
#include "cephalo/core/format.h"
#include "cephalo/core/printable.h"
#include "cephalo/text/piece_text.h"
#include "cephalo/view/columns.h"
#include "cephalo/view/head_trace.h"

namespace cephalo {
namespace {

constexpr dim_t kIndex = 4;        // columns of a token's place
constexpr dim_t kNumber = 9;       // and of a number
constexpr dim_t kScaled = 11;      // "/ sqrt(128)"
constexpr dim_t kShortest = 8;     // of a token's name
constexpr dim_t kLongest = 14;     //
constexpr dim_t kMostValues = 3;   // columns of v
constexpr dim_t kTerms = 3;        // of a sum that is worked out
constexpr dim_t kWorked = 11;      // "  softmax  "
constexpr dim_t kHeads = 12;       // that are listed
constexpr dim_t kBar = 24;         // columns of the longest bar
constexpr std::size_t kTexts = 8;  // of a batch that are listed

// Three decimals where there is room for them.
std::string number(double value) {
  const double size = std::abs(value);
  return format_text("{:.{}f}", value, size < 1000 ? 3 : (size < 1e5 ? 1 : 0));
}

// What would be 0.000 is small, not nothing.
std::string small_weight(double weight) {
  return weight > 0.0 && weight < 0.0005 ? "<0.001" : number(weight);
}

std::string cell(double value, dim_t width = kNumber) {
  return format_text(" {:>{}}", number(value), width - 1);
}

std::size_t index(dim_t at) {
  return static_cast<std::size_t>(at);
}

// A term of a sum that is worked out.
struct Term {
  double value;
  std::string text;
};

Term product_of(double a, double b) {
  return {a * b, format_text("{} x {}", number(a), number(b))};
}

// "a + b + c + ... 29 more", the largest first
std::string sum_of(std::vector<Term> terms) {
  std::stable_sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) {
    return std::abs(a.value) > std::abs(b.value);
  });
  std::vector<std::string> shown;
  for (const Term& term : terms) {
    if (std::ssize(shown) < kTerms) shown.push_back(term.text);
  }
  std::string text = joined(shown, " + ");
  if (shown.size() < terms.size()) {
    text += format_text(" + ... {} more", terms.size() - shown.size());
  }
  return text;
}

class TraceText {
 public:
  TraceText(const HeadTrace& trace, const HeadTraceText& options)
      : t_(trace), o_(options), width_(std::max<dim_t>(options.style.width, 40)) {
    place_columns();
    choose_keys();
    const std::vector<dim_t> order = t_.strongest_values();
    std::copy_n(order.begin(), values_.size(), values_.begin());
  }

  std::string draw() {
    head();
    if (t_.batch.size() > 1) batch();
    table();
    if (o_.explain) explanations();
    one_cell();
    shares();
    return out_;
  }

 private:
  // The widest form that fits: names of tokens are cut first, then columns of v left out, then
  // what a key adds.
  void place_columns() {
    const dim_t fixed = kIndex + 1 + kNumber + kScaled + kNumber;
    dim_t room = width_ - fixed - kShortest;
    has_adds_ = room >= kNumber;
    room -= has_adds_ ? kNumber : 0;
    const dim_t values = std::min({kMostValues, std::max<dim_t>(room, 0) / kNumber, t_.v.dim(1)});
    values_.resize(index(values));
    label_ = std::clamp(kShortest + room - values * kNumber, kShortest, kLongest);
    if (width_ < fixed + kShortest) label_ = width_ - fixed;
  }

  // The strongest ones and the query itself, in the order of the text.
  void choose_keys() {
    shown_ = t_.strongest();
    strongest_ = shown_.front();
    const dim_t most = std::max<dim_t>(o_.top, 1);
    if (std::ssize(shown_) > most) shown_.resize(index(most));
    if (std::find(shown_.begin(), shown_.end(), t_.token) == shown_.end()) {
      shown_.push_back(t_.token);
    }
    std::sort(shown_.begin(), shown_.end());
  }

  std::string name(dim_t token) const { return t_.tokens[index(token)].label; }

  // Text in lines that fit, the later ones below the first behind `label`.
  void lines(const std::string& label, const std::string& text) {
    const auto indent = display_width(label);
    const std::string broken = wrapped(text, index(width_) - indent);
    std::string before = label;
    for (std::size_t begin = 0; begin < broken.size();) {
      const std::size_t end = broken.find('\n', begin) + 1;
      out_ += before + broken.substr(begin, end - begin);
      before.assign(indent, ' ');
      begin = end;
    }
  }

  void head() {
    const std::string text = on_one_line(t_.text);
    const std::string what = format_text("{}: layer {} head {} of {} x {}", t_.model, t_.layer,
                                         t_.head, t_.num_layers, t_.num_heads);
    const dim_t gap = width_ - static_cast<dim_t>(display_width(text) + display_width(what));
    if (gap >= 2) {
      out_ += bold(text, o_.style) + std::string(index(gap), ' ') + what + "\n";
    } else {
      out_ += bold(cut(text, index(width_), o_.style.utf8), o_.style) + "\n";
      lines("", what);
    }
    std::string about = format_text(
        "trained parameters: query {} \"{}\" and the {} it may "
        "look at",
        t_.token, name(t_.token),
        t_.keys.size() == 1 ? "one key" : format_text("{} keys", t_.keys.size()));
    if (t_.rotary) {
      about +=
          "; q and k are taken after rotation by their positions (rotary), so q . k depends on "
          "the distance";
    }
    lines("", about);
    const std::string note = training_note(t_.trained_context_length, std::ssize(t_.tokens));
    if (!note.empty()) lines("", note);
  }

  void batch() {
    const dim_t longest = t_.padded_to();
    out_ += "\n";
    lines("", format_text("a batch of {} texts, ids [{}, {}]; shorter ones end in padding (id {}), "
                          "which comes after their last token and is never looked at: each text "
                          "gives what it gives alone",
                          t_.batch.size(), t_.batch.size(), longest, t_.padding_id));
    for (std::size_t b = 0; b < std::min(t_.batch.size(), kTexts); ++b) {
      const TracedSequence& one = t_.batch[b];
      const dim_t padding = longest - one.tokens;
      const std::string counts = format_text(
          "{} tokens{}", one.tokens, padding > 0 ? format_text(" + {} padding", padding) : "");
      const std::string place =
          format_text("{} {:>3}  ", static_cast<dim_t>(b) == t_.sequence ? ">" : " ", b);
      const auto room =
          static_cast<dim_t>(index(width_) - display_width(place) - counts.size()) - 2;
      const std::string text =
          cut(on_one_line(one.text), index(std::clamp<dim_t>(room, 4, 40)), o_.style.utf8);
      out_ += place + fit(text, index(std::clamp<dim_t>(room, 4, 40))) + "  " + counts + "\n";
    }
    if (t_.batch.size() > kTexts) out_ += format_text("  and {} more\n", t_.batch.size() - kTexts);
  }

  std::string row(const std::string& place, const std::string& label) const {
    return format_text("{:>{}} {}", place, kIndex,
                       fit(cut(label, index(label_), o_.style.utf8), index(label_)));
  }

  void table() {
    const std::string scaled = format_text("/ sqrt({})", t_.q.numel());
    out_ += "\n" + row("j", "key") +
            format_text(" {:>{}} {:>{}} {:>{}}", "q . k", kNumber - 1, scaled, kScaled - 1,
                        "weight", kNumber - 1);
    if (has_adds_) out_ += format_text(" {:>{}}", "adds", kNumber - 1);
    for (const dim_t d : values_)
      out_ += format_text(" {:>{}}", format_text("v[{}]", d), kNumber - 1);
    out_ += "\n";
    for (const dim_t j : shown_) key_row(j);
    rest();
    sum_row();
    std::string legend;
    if (has_adds_)
      legend =
          "adds: the weight times the length of v W_out, which is what the key puts into the "
          "residual stream";
    if (!values_.empty()) {
      legend += format_text("; v[{}]: of the {} numbers of v, {} that the context has most of",
                            values_.front(), t_.v.dim(1),
                            values_.size() == 1 ? "one" : format_text("the {}", values_.size()));
    }
    if (!legend.empty()) lines("", legend);
  }

  void key_row(dim_t j) {
    const TracedKey& key = t_.keys[index(j)];
    out_ += row(format_text("{}", j), name(j)) + cell(key.product) + cell(key.score, kScaled);
    const std::string weight = format_text(" {:>{}}", small_weight(key.weight), kNumber - 1);
    out_ += o_.style.colours == ColourDepth::none
                ? weight
                : "  " + painted(weight.substr(2), key.weight, o_.style);
    if (has_adds_) out_ += cell(key.adds);
    for (const dim_t d : values_) out_ += cell(t_.v.at({j, d}));
    out_ += "\n";
  }

  void rest() {
    const dim_t left_out = std::ssize(t_.keys) - std::ssize(shown_);
    if (left_out == 0) return;
    double weight = 1.0;
    for (const dim_t j : shown_) weight -= t_.keys[index(j)].weight;
    lines("   ", format_text("{} left out: their weights are {} together",
                             left_out == 1 ? "1 key is" : format_text("{} keys are", left_out),
                             small_weight(std::max(weight, 0.0))));
  }

  void sum_row() {
    double sum = 0.0;
    for (const TracedKey& key : t_.keys) sum += key.weight;
    const char* label = values_.empty() ? "sum" : "sum (of v: weight x v)";
    out_ += std::string(kIndex + 1, ' ') + fit(label, index(label_ + kNumber + kScaled));
    out_ += cell(sum) + std::string(has_adds_ ? kNumber : 0, ' ');
    for (const dim_t d : values_) out_ += cell(t_.context.at({d}));
    out_ += "\n";
  }

  void explanations() {
    std::vector<const char*> steps = {"SCORES",  "MASK",   "SCALE",
                                      "SOFTMAX", "VALUES", "PROJECT OUT"};
    if (t_.rotary) steps.insert(steps.begin(), "ROTATE");
    for (const char* step : steps) {
      const Explanation about = explain(step);
      out_ += "\n" + bold(step, o_.style) + "\n";
      lines("   what    ", about.what);
      lines("   why     ", about.why);
      lines("   effect  ", about.effect);
    }
  }

  void one_cell() {
    out_ += "\n";
    lines("", format_text("the strongest key by hand: query {} \"{}\", key {} \"{}\" (sums with "
                          "their largest terms first)",
                          t_.token, name(t_.token), strongest_, name(strongest_)));
    for (const WorkedStep& step : worked_key(t_)) {
      lines(fit(format_text("  {}", step.name), kWorked), step.text);
    }
  }

  void shares() {
    const std::vector<double> shares = t_.shares();
    out_ += "\n";
    lines(
        "",
        format_text(
            "what each head of layer {} adds at \"{}\": the length of z W_out (its context through "
            "its own columns of the output projection), and its share of the sum of these lengths",
            t_.layer, name(t_.token)));
    std::vector<dim_t> order(t_.head_norms.size());
    std::iota(order.begin(), order.end(), dim_t{0});
    if (std::ssize(order) > kHeads) {  // of many the strongest, in their own order
      std::stable_sort(order.begin(), order.end(), [&](dim_t a, dim_t b) {
        return t_.head_norms[index(a)] > t_.head_norms[index(b)];
      });
      order.resize(kHeads);
      std::sort(order.begin(), order.end());
    }
    for (const dim_t h : order) {
      const double share = shares.empty() ? 0.0 : shares[index(h)];
      out_ += format_text("{} head {:>2} {} {}  {}\n", h == t_.head ? ">" : " ", h,
                          cell(t_.head_norms[index(h)]),
                          shares.empty() ? "   -" : format_text("{:.2f}", share),
                          draw_bar(share, std::min(kBar, width_ - 28), o_.style));
    }
    const dim_t left_out = t_.num_heads - std::ssize(order);
    if (left_out > 0) out_ += format_text("  and less in {} more heads\n", left_out);
    const double sum = std::accumulate(t_.head_norms.begin(), t_.head_norms.end(), 0.0);
    lines("", format_text("together they add {}, not {}: heads point in different directions; the "
                          "bias adds {} to every token",
                          number(t_.added_norm), number(sum), number(t_.bias_norm)));
  }

  const HeadTrace& t_;
  const HeadTraceText& o_;
  dim_t width_;
  dim_t label_ = kShortest;
  bool has_adds_ = false;
  dim_t strongest_ = 0;        // key
  std::vector<dim_t> shown_;   // keys
  std::vector<dim_t> values_;  // numbers of v that the context has most of
  std::string out_;
};

}  // namespace

// Sums begin with their largest terms.
std::vector<WorkedStep> worked_key(const HeadTrace& trace) {
  const dim_t j = trace.strongest().front();
  const dim_t d = trace.strongest_values().front();
  const TracedKey& key = trace.keys[index(j)];
  std::vector<Term> products, powers, values;
  for (dim_t n = 0; n < trace.q.numel(); ++n) {
    products.push_back(product_of(trace.q.at({n}), trace.k.at({j, n})));
  }
  // The strongest key has the largest score: softmax subtracts it, so that nothing overflows.
  double sum = 0.0;
  for (dim_t n = 0; n < std::ssize(trace.keys); ++n) {
    const TracedKey& one = trace.keys[index(n)];
    const double power = std::exp(one.score - key.score);
    sum += power;
    powers.push_back({power, number(power)});
    values.push_back(product_of(one.weight, trace.v.at({n, d})));
  }
  return {{"q . k", format_text("{} = {}", sum_of(products), number(key.product))},
          {"scale", format_text("{} / sqrt({}) = {}", number(key.product), trace.q.numel(),
                                number(key.score))},
          {"softmax", format_text("exp({0} - {0}) / ({1}) = 1 / {2} = {3}", number(key.score),
                                  sum_of(powers), number(sum), number(key.weight))},
          {"values",
           format_text("{} = {} = context[{}]", sum_of(values), number(trace.context.at({d})), d)}};
}

std::string to_text(const HeadTrace& trace, const HeadTraceText& options) {
  return TraceText(trace, options).draw();
}

}  // namespace cephalo
