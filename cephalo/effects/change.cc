#include "cephalo/effects/change.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <tuple>

#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

struct KindWord {
  ChangeKind kind;
  const char* word;
};
constexpr std::array<KindWord, 9> kKinds{{{ChangeKind::zero, "zero"},
                                          {ChangeKind::mean, "mean"},
                                          {ChangeKind::reference_mean, "reference-mean"},
                                          {ChangeKind::uniform, "uniform"},
                                          {ChangeKind::no_first, "no-first"},
                                          {ChangeKind::patch, "patch"},
                                          {ChangeKind::scale, "scale"},
                                          {ChangeKind::hide, "hide"},
                                          {ChangeKind::cut, "cut"}}};

constexpr const char* kForms =
    "L3H2 (a head), L3 (a layer), L3.attention, L3.mlp, L3H2:12>4 (query 12 looks at key 4), "
    "L3.stream or L3.stream:12, joined by commas";

const char* section_name(ModelSection section) {
  switch (section) {
    case ModelSection::head:
      return "a head";
    case ModelSection::attention:
      return "the attention of a layer";
    case ModelSection::mlp:
      return "the MLP of a layer";
    case ModelSection::layer:
      return "a layer";
    case ModelSection::edge:
      return "an edge";
    case ModelSection::stream:
      return "the stream";
  }
  fail(Error::Kind::value, "unknown ModelSection {}", static_cast<int>(section));
}

bool has_kind(ModelSection section, ChangeKind kind) {
  const bool of_edge = kind == ChangeKind::hide || kind == ChangeKind::cut;
  if (section == ModelSection::edge) return of_edge;
  if (section == ModelSection::head) return !of_edge;
  return kind == (section == ModelSection::stream ? ChangeKind::patch : ChangeKind::zero);
}

// One change at the front of text, piece by piece.
class ChangeReader {
 public:
  explicit ChangeReader(std::string_view text) : rest_(text) {}

  std::optional<Change> read() {
    Change change;
    if (!take("L") || !take_number(&change.layer)) return {};
    change.section = ModelSection::layer;
    if (take("H")) {
      if (!take_number(&change.head)) return {};
      change.section = ModelSection::head;
      if (take(":")) {
        if (!take_number(&change.query) || !take(">") || !take_number(&change.key)) return {};
        change.section = ModelSection::edge;
      }
    } else if (take(".attention")) {
      change.section = ModelSection::attention;
    } else if (take(".mlp")) {
      change.section = ModelSection::mlp;
    } else if (take(".stream")) {
      change.section = ModelSection::stream;
      if (take(":") && !take_number(&change.position)) return {};
    }
    return rest_.empty() ? std::optional(change) : std::nullopt;
  }

 private:
  bool take(std::string_view word) {
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  bool take_number(dim_t* value) {
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), *value);
    if (error != std::errc() || rest_.front() == '-') return false;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return true;
  }

  std::string_view rest_;
};

void check_change(const Change& c, const GptOptions& model, dim_t tokens) {
  require(0 <= c.layer && c.layer < model.num_layers, "{}: there are layers 0 to {}", to_string(c),
          model.num_layers - 1);
  require(has_kind(c.section, c.kind), "{}: {} cannot be changed by {}", to_string(c),
          section_name(c.section), name(c.kind));
  require(std::isfinite(c.factor), "{}: the factor must be finite, not {}", to_string(c), c.factor);
  if (c.section == ModelSection::head || c.section == ModelSection::edge) {
    require(0 <= c.head && c.head < model.num_heads, "{}: a layer has heads 0 to {}", to_string(c),
            model.num_heads - 1);
  }
  if (c.section == ModelSection::edge) {
    require(0 <= c.query && c.query < tokens, "{}: query {} is not among tokens 0 to {}",
            to_string(c), c.query, tokens - 1);
    require(0 <= c.key && c.key <= c.query, "{}: query {} sees keys 0 to {}, not {}", to_string(c),
            c.query, c.query, c.key);
    require(c.kind != ChangeKind::hide || c.query > 0,
            "{}: query 0 sees itself alone, and nothing is left when that is hidden", to_string(c));
  }
  if (c.section == ModelSection::stream) {
    require(-1 <= c.position && c.position < tokens,
            "{}: position {} is not among tokens 0 to {}; -1 means all", to_string(c), c.position,
            tokens - 1);
  }
}

// Two changes that would both say what becomes of one thing. An edge is one of its head's.
bool collide(const Change& a, const Change& b) {
  const auto is_head = [](const Change& c) {
    return c.section == ModelSection::head || c.section == ModelSection::edge;
  };
  if (a.layer != b.layer) return false;
  if (is_head(a) && is_head(b)) {
    const bool both_edges = a.section == b.section && a.section == ModelSection::edge;
    if (a.head != b.head) return false;
    return !both_edges || std::tie(a.query, a.key) == std::tie(b.query, b.key);
  }
  if (a.section != b.section) return false;
  return a.section != ModelSection::stream || a.position == b.position || a.position < 0 ||
         b.position < 0;
}

// Hidden keys of a row, all of them, would leave it without weights.
void check_rows_left(const Changes& changes) {
  for (const Change& c : changes) {
    if (c.kind != ChangeKind::hide) continue;
    const auto hidden = std::count_if(changes.begin(), changes.end(), [&](const Change& other) {
      return other.kind == ChangeKind::hide && other.layer == c.layer && other.head == c.head &&
             other.query == c.query;
    });
    require(hidden <= c.query, "{}: all keys of query {} are hidden, one must stay", to_string(c),
            c.query);
  }
}

}  // namespace

const char* name(ChangeKind kind) {
  for (const KindWord& each : kKinds) {
    if (each.kind == kind) return each.word;
  }
  fail(Error::Kind::value, "unknown ChangeKind {}", static_cast<int>(kind));
}

ChangeKind parse_change_kind(std::string_view word) {
  std::string words;
  for (const KindWord& each : kKinds) {
    if (word == each.word) return each.kind;
    words += (words.empty() ? "" : ", ") + std::string(each.word);
  }
  fail(Error::Kind::value, "there is no kind of change \"{}\"; there are {}", std::string(word),
       words);
}

std::string to_string(const Change& c) {
  switch (c.section) {
    case ModelSection::head:
      return format_text("L{}H{}", c.layer, c.head);
    case ModelSection::attention:
      return format_text("L{}.attention", c.layer);
    case ModelSection::mlp:
      return format_text("L{}.mlp", c.layer);
    case ModelSection::layer:
      return format_text("L{}", c.layer);
    case ModelSection::edge:
      return format_text("L{}H{}:{}>{}", c.layer, c.head, c.query, c.key);
    case ModelSection::stream:
      return c.position < 0 ? format_text("L{}.stream", c.layer)
                            : format_text("L{}.stream:{}", c.layer, c.position);
  }
  fail(Error::Kind::value, "unknown ModelSection {}", static_cast<int>(c.section));
}

Changes parse_changes(std::string_view text, ChangeKind kind, double factor) {
  Changes changes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    std::string_view part = text.substr(begin, comma - begin);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    std::optional<Change> change = ChangeReader(part).read();
    require(change.has_value(), "\"{}\" does not name a part of a model; it is written {}",
            std::string(part), kForms);
    const bool edge = change->section == ModelSection::edge;
    change->kind = edge && kind == ChangeKind::zero ? ChangeKind::hide : kind;
    change->factor = factor;
    changes.push_back(*change);
    begin = comma + 1;
  }
  return changes;
}

void check_changes(const Changes& changes, const GptOptions& model, dim_t tokens) {
  for (const Change& c : changes) check_change(c, model, tokens);
  for (std::size_t a = 0; a < changes.size(); ++a) {
    for (std::size_t b = a + 1; b < changes.size(); ++b) {
      require(!collide(changes[a], changes[b]), "{} and {} change the same thing in one run",
              to_string(changes[a]), to_string(changes[b]));
    }
  }
  check_rows_left(changes);
}

std::vector<Changes> each_head(const GptOptions& model, ChangeKind kind, double factor) {
  std::vector<Changes> experiments;
  for (dim_t layer = 0; layer < model.num_layers; ++layer) {
    for (dim_t head = 0; head < model.num_heads; ++head) {
      experiments.push_back({{.section = ModelSection::head,
                              .layer = layer,
                              .head = head,
                              .kind = kind,
                              .factor = factor}});
    }
  }
  return experiments;
}

std::vector<Changes> each_pair(const GptOptions& model, ChangeKind kind) {
  const std::vector<Changes> heads = each_head(model, kind);
  std::vector<Changes> experiments;
  for (std::size_t a = 0; a < heads.size(); ++a) {
    for (std::size_t b = a + 1; b < heads.size(); ++b) {
      experiments.push_back({heads[a].front(), heads[b].front()});
    }
  }
  return experiments;
}

std::vector<Changes> each_section(const GptOptions& model) {
  std::vector<Changes> experiments;
  for (dim_t layer = 0; layer < model.num_layers; ++layer) {
    for (const ModelSection section : {ModelSection::attention, ModelSection::mlp}) {
      experiments.push_back({{.section = section, .layer = layer, .kind = ChangeKind::zero}});
    }
  }
  return experiments;
}

std::vector<Changes> each_edge(const GptOptions& model, dim_t query, ChangeKind kind) {
  require(query >= 0, "each_edge: query {} is not a token", query);
  std::vector<Changes> experiments;
  for (dim_t layer = 0; layer < model.num_layers; ++layer) {
    for (dim_t head = 0; head < model.num_heads; ++head) {
      for (dim_t key = 0; key <= query; ++key) {
        experiments.push_back({{.section = ModelSection::edge,
                                .layer = layer,
                                .head = head,
                                .kind = kind,
                                .query = query,
                                .key = key}});
      }
    }
  }
  return experiments;
}

}  // namespace cephalo
