#include "cephalo/view/head_metrics.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/gil.h"
#include "bindings/arrays/ids.h"
#include "bindings/bindings.h"
#include "bindings/core/random.h"
#include "bindings/view/recording.h"
#include "cephalo/core/format.h"
#include "cephalo/view/head_links.h"

namespace cephalo::python {
namespace {

using Probe = std::vector<std::vector<ProbeScores>>;
using Labels = std::vector<std::pair<std::string, double>>;
using Place = std::pair<dim_t, dim_t>;

HeadMetrics metrics_of_sums(const AnyArray& sums) {
  const ArrayIn rows(sums, "head_metrics", "sums");
  return head_metrics(rows);
}

Labels named(const std::vector<LabelScore>& labels) {
  Labels words;
  for (const LabelScore& label : labels) words.emplace_back(name(label.label), label.score);
  return words;
}

ProbeOptions probe_options(dim_t length, dim_t draws, std::uint64_t seed,
                           std::optional<std::int64_t> bos, std::optional<int> threads) {
  return {.length = length,
          .draws = draws,
          .seed = seed,
          .bos_token_id = bos,
          .threads = threads.value_or(0)};
}

Probe probe(const Model& model, dim_t length, dim_t draws, std::uint64_t seed,
            std::optional<std::int64_t> bos, std::optional<int> threads) {
  const ProbeOptions options =
      probe_options(length, draws, seed, bos ? bos : model.first_token(), threads);
  return reading(model, [&](const Gpt& gpt) { return probe_heads(gpt, options); });
}

nb::list ids_of_probe(dim_t vocab_size, Generator& generator, dim_t length,
                      std::optional<std::int64_t> bos) {
  const GeneratorTurn turn(&generator);
  return to_list(probe_ids(vocab_size, {.length = length, .bos_token_id = bos}, *turn.stream()));
}

std::vector<HeadReport> reports(const RecordedText& recording, const Probe& probe) {
  const auto heads = static_cast<std::size_t>(recording.recording->num_heads());
  const bool fits = static_cast<dim_t>(probe.size()) == recording.recording->num_layers() &&
                    std::all_of(probe.begin(), probe.end(),
                                [&](const auto& layer) { return layer.size() == heads; });
  require(probe.empty() || fits,
          "report_heads: the probe is of a model with other layers or heads");
  return asked(recording, [&](const Recording& r) { return report_heads(r, probe); });
}

using Links = std::vector<std::tuple<dim_t, dim_t, double>>;
Links links(const RecordedText& recording, dim_t layer, dim_t head, dim_t count,
            const std::optional<std::string>& label) {
  const auto* found = std::find_if(std::begin(kHeadLabels), std::end(kHeadLabels),
                                   [&](HeadLabel l) { return label && *label == name(l); });
  require(!label || found != std::end(kHeadLabels), "strongest_links: there is no label '{}'",
          label.value_or(""));
  Links strongest;
  for (const Link& link : asked(recording, [&](const Recording& r) {
         return label ? counted_links(r, {layer, head}, *found, count)
                      : strongest_links(r, {layer, head}, count);
       })) {
    strongest.emplace_back(link.query, link.key, link.weight);
  }
  return strongest;
}

// Of recordings, weights alone are read: no model has to be held.
double divergence(const RecordedText& a, Place head_a, const RecordedText& b, Place head_b) {
  const WithoutGil released;
  return head_divergence(*a.recording, {head_a.first, head_a.second}, *b.recording,
                         {head_b.first, head_b.second});
}

void bind_scores(nb::module_& m) {
  nb::class_<Score>(m, "Score", "A mean over some rows of a head's weights.")
      .def_ro("value", &Score::value, "0 if no row counts")
      .def_ro("rows", &Score::rows, "how many count")
      .def_ro("uniform", &Score::uniform,
              "what one key gets in those rows from a head that looks at all keys equally")
      .def("__float__", [](const Score& s) { return s.value; })
      .def("__repr__", [](const Score& s) {
        return format_text("Score({:.4f}, rows={}, uniform={:.4f})", s.value, s.rows, s.uniform);
      });
  nb::class_<HeadMetrics>(m, "HeadMetrics",
                          "What a head's weights on a text are like; rows that see a single key "
                          "are left out.")
      .def_ro("previous", &HeadMetrics::previous, "on the token before")
      .def_ro("first", &HeadMetrics::first, "on the first token")
      .def_ro("current", &HeadMetrics::current, "on itself")
      .def_ro("duplicate", &HeadMetrics::duplicate, "on the same token earlier")
      .def_ro("induction", &HeadMetrics::induction, "on what followed the same token earlier")
      .def_ro("entropy", &HeadMetrics::entropy, "0: a single key; 1: all keys equally")
      .def_ro("effective_tokens", &HeadMetrics::effective_tokens, "exp of the entropy")
      .def_ro("confidence", &HeadMetrics::confidence, "the largest weight of a row")
      .def_ro("distance", &HeadMetrics::distance, "tokens back")
      .def("__repr__", [](const HeadMetrics& h) {
        return format_text(
            "HeadMetrics(previous={:.3f}, first={:.3f}, current={:.3f}, "
            "duplicate={:.3f}, induction={:.3f}, entropy={:.3f})",
            h.previous.value, h.first.value, h.current.value, h.duplicate.value, h.induction.value,
            h.entropy.value);
      });
  nb::class_<ProbeScores>(m, "ProbeScores", "What one head shows on the probe.")
      .def_ro("duplicate", &ProbeScores::duplicate, "on the same token of the first copy")
      .def_ro("induction", &ProbeScores::induction, "on the token after it")
      .def("__repr__", [](const ProbeScores& p) {
        return format_text("ProbeScores(duplicate={:.3f}, induction={:.3f})", p.duplicate.value,
                           p.induction.value);
      });
  nb::class_<HeadReport>(m, "HeadReport", "What one head shows on a text and on the probe.")
      .def_ro("layer", &HeadReport::layer)
      .def_ro("head", &HeadReport::head)
      .def_ro("metrics", &HeadReport::text, "HeadMetrics on the text")
      .def_ro("probe", &HeadReport::probe, "ProbeScores, or None")
      .def_prop_ro(
          "labels", [](const HeadReport& r) { return named(r.labels); }, "(label, score), ...")
      .def("__repr__", [](const HeadReport& r) {
        std::string labels;
        for (const LabelScore& l : r.labels) {
          labels += format_text(", {} {:.2f}", name(l.label), l.score);
        }
        return format_text("HeadReport(layer={}, head={}{})", r.layer, r.head, labels);
      });
}

void bind_probe(nb::module_& m) {
  const ProbeOptions d;
  m.def("probe_heads", &probe, "model"_a, nb::kw_only(), "length"_a = d.length, "draws"_a = d.draws,
        "seed"_a = d.seed, "bos_token_id"_a = nb::none(), "threads"_a = nb::none(),
        "A token that begins a text, then `length` different random tokens, twice: the second copy "
        "can only be\n"
        "predicted by looking at the first. Means over all draws ->\n"
        "ProbeScores by [layer][head].");
  m.def("probe_ids", &ids_of_probe, "vocab_size"_a, "generator"_a, "length"_a = d.length,
        "bos_token_id"_a = nb::none(), "The token ids of one draw: 2 * length + 1.");
  m.def(
      "longest_probe", [](const Model& model) { return longest_probe(model.gpt.options()); },
      "model"_a, "The longest `length` of a probe of this model; 0: none fits.");
}

}  // namespace

void bind_head_metrics(nb::module_& m) {
  bind_scores(m);
  bind_probe(m);
  m.def("head_metrics", &metrics_of_sums, "sums"_a,
        "sums: float64 [tokens, 11] of one head, as row_sums gives them -> HeadMetrics");
  m.def(
      "head_metrics",
      [](const RecordedText& recording, dim_t layer) {
        return asked(recording, [&](const Recording& r) { return head_metrics(r, layer); });
      },
      "recording"_a, "layer"_a, "-> HeadMetrics of every head of a layer");
  m.def(
      "head_labels",
      [](const HeadMetrics& metrics, const ProbeScores* scores) {
        return named(head_labels(metrics, scores));
      },
      "metrics"_a, "probe"_a = nb::none(),
      "The patterns that a head shows, (label, score): previous, induction, duplicate, sink,\n"
      "current, diffuse. Induction and duplicate are judged by the probe alone. A label is a\n"
      "pattern of the weights, not an effect on the output.");
  m.def("report_heads", &reports, "recording"_a, "probe"_a = Probe(),
        "HeadReport of every head, layer by layer. probe: of probe_heads");
  m.def(
      "strongest_links", &links, "recording"_a, "layer"_a, "head"_a, "count"_a = 3,
      "label"_a = nb::none(),
      "For each query that sees more than one key, the key it looks at most; the strongest of\n"
      "these: (query, key, weight), ... With a label, only among the keys that its score counts.");
  m.def(
      "first_token_share",
      [](const RecordedText& recording, dim_t layer) {
        return asked_with_model(recording,
                                [&](const Recording& r) { return first_token_share(r, layer); });
      },
      "recording"_a, "layer"_a, "How much of what each head adds comes from the first token.");
  m.def(
      "head_divergence", &divergence, "a"_a, "head_a"_a, "b"_a, "head_b"_a,
      "How differently two heads, each (layer, head), look at texts of the same length: the mean\n"
      "over rows of the Jensen-Shannon divergence.");
  m.def(
      "value_weighted",
      [](const AnyArray& weights, const AnyArray& norms) {
        const ArrayIn a(weights, "value_weighted", "weights");
        const ArrayIn b(norms, "value_weighted", "norms");
        return to_python(value_weighted(a, b), a.kind());
      },
      "weights"_a, "norms"_a,
      "weights: [heads, rows, keys], norms: [heads, keys] of value_norms -> the same shape,\n"
      "weights times norms with rows that add up to 1.");
  m.def(
      "jensen_shannon",
      [](const AnyArray& a, const AnyArray& b) {
        return jensen_shannon(ArrayIn(a, "jensen_shannon", "a"), ArrayIn(b, "jensen_shannon", "b"));
      },
      "a"_a, "b"_a, "a, b: [keys], each adding up to 1 -> from 0 for equal ones to ln 2");
}

}  // namespace cephalo::python
