#include "cephalo/view/effects_words.h"

#include <algorithm>
#include <cmath>

#include "cephalo/core/format.h"
#include "cephalo/effects/attribution.h"
#include "cephalo/text/piece_text.h"

namespace cephalo {
namespace {

// Below this share of its effect, what a head adds itself is not what it matters by.
constexpr double kMostlyDirect = 0.5;
// From this share on, one token is where that comes from.
constexpr double kOneSource = 0.5;

// Where the token stands that a head reads, seen from the last one.
class Source {
 public:
  Source(const LookReport& look, const HeadInfluence& head)
      : look_(look), at_(head.source), last_(std::ssize(look.tokens) - 1) {}

  bool follows_the_same() const { return 1 <= at_ && at_ < last_ && id(at_ - 1) == id(last_); }

  std::string in_words() const {
    if (follows_the_same()) {
      return format_text("{}, which followed {} before", piece(at_), piece(last_));
    }
    if (at_ == last_) return format_text("{} itself", piece(last_));
    if (at_ == 0) return format_text("the first token, {}", piece(0));
    if (at_ == last_ - 1) return format_text("the token before, {}", piece(at_));
    if (id(at_) == id(last_)) return format_text("the same token earlier, {}", numbered());
    return numbered();
  }

  std::string numbered() const { return format_text("{} (token {})", piece(at_), at_); }
  std::int64_t id(dim_t at) const { return look_.tokens[static_cast<std::size_t>(at)].id; }
  std::string piece(dim_t at) const {
    return in_quotes(look_.tokens[static_cast<std::size_t>(at)].piece);
  }
  dim_t last() const { return last_; }

 private:
  const LookReport& look_;
  dim_t at_;
  dim_t last_;
};

// The rest of the sentence, with its comma or colon.
std::string how(const EffectsReport& report, const HeadInfluence& head) {
  const double raises = -head.logit_change;
  // Its own part may point the other way, or be the smaller one.
  if (head.direct / raises < kMostlyDirect) {
    std::string words =
        format_text(", through later parts of the model ({:+.1f} directly)", head.direct);
    const HeadReport& seen = report.look.at(head.place);
    for (const LabelScore& label : seen.labels) {
      if (label.label == HeadLabel::sink) continue;
      return words + format_text("; it looks {}", in_words(label.label));
    }
    return words;
  }
  const Source source(report.look, head);
  const bool one = head.source_direct / head.direct >= kOneSource;
  if (!one) {
    return format_text(": it reads from several tokens, most from {} ({:+.1f})", source.in_words(),
                       head.source_direct);
  }
  const bool copies = source.id(head.source) == report.predicted.token.id && raises > 0.0;
  if (copies && source.follows_the_same()) {
    return format_text(": it copies what followed {} before", source.piece(source.last()));
  }
  if (copies) return format_text(": it copies {}", source.numbered());
  return format_text(": it reads that from {}", source.in_words());
}

}  // namespace

HeadInfluence influence_of(const EffectsReport& report, const HeadPlace& place,
                           double logit_change) {
  const dim_t last = report.pass->tokens() - 1;
  const Tensor sources =
      attribute_sources(*report.pass, place.layer, place.head, last, report.predicted.token.id);
  const auto* begin = sources.data_as<double>();
  HeadInfluence head{.place = place, .logit_change = logit_change};
  for (dim_t j = 0; j <= last; ++j) head.direct += begin[j];
  // The one that takes most part in the sum, by its sign.
  const auto* most = head.direct < 0.0 ? std::min_element(begin, begin + last + 1)
                                       : std::max_element(begin, begin + last + 1);
  head.source = most - begin;
  head.source_direct = *most;
  head.source_weight =
      report.look.recording->weights(place.layer, {.heads = {place.head}, .rows = {last}})
          .at({0, 0, head.source});
  if (report.options.kind == ChangeKind::scale) {  // not a removal: nothing is said of why
    head.words = format_text("layer {} head {} times {}: the logit of {} changes by {:+.1f}",
                             place.layer, place.head, report.options.factor,
                             in_quotes(report.predicted.token.piece), logit_change);
    return head;
  }
  head.words =
      format_text("layer {} head {} {} {} by {:.1f}{}", place.layer, place.head,
                  logit_change < 0.0 ? "raises" : "lowers", in_quotes(report.predicted.token.piece),
                  std::abs(logit_change), how(report, head));
  return head;
}

std::string in_words(const EffectsOptions& options) {
  switch (options.kind) {
    case ChangeKind::zero:
      return "set to zero";
    case ChangeKind::mean:
      return "replaced by its mean over this text";
    case ChangeKind::reference_mean:
      return "replaced by its mean over the reference text";
    case ChangeKind::uniform:
      return "made to look at all tokens equally";
    case ChangeKind::no_first:
      return "kept from looking at the first token";
    case ChangeKind::scale:
      return format_text("multiplied by {}", options.factor);
    case ChangeKind::patch:
    case ChangeKind::hide:
    case ChangeKind::cut:
      break;  // not of a head on its own
  }
  return name(options.kind);
}

}  // namespace cephalo
