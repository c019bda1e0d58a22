#include "cephalo/effects/sweep.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/parallel.h"
#include "cephalo/effects/experiment_walk.h"
#include "cephalo/effects/readout.h"

namespace cephalo {
namespace {

// Rows that go through the layers together: enough for the GEMM where an experiment has one, and
// for pairs of heads to share most of their way.
constexpr dim_t kRowsTogether = 8192;

void check_given(const KeptPass& text, const Changes& changes, const SweepOptions& options) {
  for (const Change& c : changes) {
    require(c.kind != ChangeKind::patch || options.patch_from != nullptr,
            "{}: patch needs patch_from, the run that it takes from", to_string(c));
    require(c.kind != ChangeKind::reference_mean || options.reference != nullptr,
            "{}: reference-mean needs reference, the means that it takes", to_string(c));
  }
  const GptOptions& o = text.options();
  if (const KeptPass* from = options.patch_from; from != nullptr) {
    require(&from->model() == &text.model(), "measure_changes: patch_from is of another model");
    require(from->tokens() == text.tokens(),
            "measure_changes: patch_from has {} tokens, the text {}; positions must correspond",
            from->tokens(), text.tokens());
  }
  if (options.reference != nullptr) {
    const Shape wanted{o.num_layers, o.d_model};
    require(options.reference->shape() == wanted && options.reference->dtype() == DType::f64,
            "measure_changes: reference is {} of {}, float64 of {} is needed",
            name(options.reference->dtype()), options.reference->shape(), wanted);
  }
}

// Does every change put rows of the stream where equal ones are? So it is with texts that agree up
// to some token. Heads are not looked at: their contexts differ wherever texts do.
bool changes_nothing(const KeptPass& text, const Changes& changes, const KeptPass* from) {
  return std::all_of(changes.begin(), changes.end(), [&](const Change& c) {
    if (c.section != ModelSection::stream) return false;
    const dim_t begin = std::max<dim_t>(c.position, 0);
    const dim_t end = c.position < 0 ? text.tokens() : c.position + 1;
    const TensorView here = text.layer(c.layer).resid_pre.slice(0, begin, end);
    const TensorView there = from->layer(c.layer).resid_pre.slice(0, begin, end);
    return std::memcmp(here.data(), there.data(), here.bytes()) == 0;
  });
}

// Experiments that begin alike, in their order.
struct Group {
  Beginning beginning;
  std::vector<std::size_t> members;
};

class Sweep {
 public:
  Sweep(const KeptPass& text, std::span<const Changes> experiments, const Measures& measures,
        const SweepOptions& options)
      : text_(text),
        experiments_(experiments),
        options_(options),
        readout_(text, measures),
        wanted_{.all = measures.losses, .position = readout_.position()},
        results_(experiments.size()),
        done_(experiments.size(), false) {
    for (const Changes& changes : experiments) {
      check_changes(changes, text.options(), text.tokens());
      check_given(text, changes, options);
    }
  }

  std::vector<Measured> run() {
    bool goes_on = finish_unchanged();
    for (const Group& group : groups()) {
      if (goes_on) goes_on = run_group(group);
    }
    results_.resize(finished_);
    return std::move(results_);
  }

 private:
  // Those that change nothing, or nothing that is read.
  bool finish_unchanged() {
    std::vector<std::size_t> members;
    for (std::size_t n = 0; n < experiments_.size(); ++n) {
      const Changes& changes = experiments_[n];
      const bool reaches = wanted_.all || first_row(changes) <= wanted_.position;
      if (!reaches || changes_nothing(text_, changes, options_.patch_from)) members.push_back(n);
    }
    if (members.empty()) return true;
    return finish(members, std::vector<Measured>(members.size(), readout_.unchanged()));
  }

  std::vector<Group> groups() const {
    std::vector<Group> groups;
    std::map<Beginning, std::size_t> found;
    for (std::size_t n = 0; n < experiments_.size(); ++n) {
      if (done_[n]) continue;
      const Beginning beginning = beginning_of(experiments_[n]);
      const auto [at, is_new] = found.try_emplace(beginning, groups.size());
      if (is_new) groups.push_back({beginning, {}});
      groups[at->second].members.push_back(n);
    }
    return groups;
  }

  bool run_group(const Group& group) {
    ExperimentWalk walk(text_, options_, group.beginning, wanted_);
    for (std::size_t begin = 0; begin < group.members.size();) {
      const std::span members = members_together(walk, std::span(group.members).subspan(begin));
      std::vector<const Changes*> together;
      dim_t rows = 0;
      for (const std::size_t n : members) {
        together.push_back(&experiments_[n]);
        rows += walk.rows_of_one(experiments_[n]);
      }
      walk.reserve(rows, memory_);
      walk.run(together);
      std::vector<Measured> measured(members.size());
      readout_.read(walk.normed(), walk.runs(), measured);
      if (!finish(members, std::move(measured))) return false;
      begin += members.size();
    }
    return true;
  }

  // As many from the first on as go together.
  std::span<const std::size_t> members_together(const ExperimentWalk& walk,
                                                std::span<const std::size_t> members) const {
    const auto by_memory = static_cast<dim_t>(options_.memory / walk.bytes_of_row());
    const dim_t most = std::min(by_memory, kRowsTogether);
    std::size_t count = 0;
    for (dim_t rows = 0; count < members.size(); ++count) {
      rows += walk.rows_of_one(experiments_[members[count]]);
      if (count > 0 && rows > most) break;
    }
    return members.first(count);
  }

  bool finish(std::span<const std::size_t> members, std::vector<Measured> measured) {
    for (std::size_t m = 0; m < members.size(); ++m) {
      results_[members[m]] = std::move(measured[m]);
      done_[members[m]] = true;
    }
    const std::size_t before = finished_;
    while (finished_ < done_.size() && done_[finished_]) ++finished_;
    if (finished_ == before || !options_.progress) return true;
    return options_.progress(finished_, results_.size());
  }

  const KeptPass& text_;
  std::span<const Changes> experiments_;
  const SweepOptions& options_;
  Readout readout_;
  WantedRows wanted_;
  PassMemory memory_;  // of all walks
  std::vector<Measured> results_;
  std::vector<bool> done_;
  std::size_t finished_ = 0;  // from the front
};

}  // namespace

std::vector<Measured> measure_changes(const KeptPass& text, std::span<const Changes> experiments,
                                      const Measures& measures, const SweepOptions& options) {
  const UseThreads limit(options.threads);
  return Sweep(text, experiments, measures, options).run();
}

Measured measure(const KeptPass& text, const Changes& changes, const Measures& measures,
                 const SweepOptions& options) {
  return std::move(measure_changes(text, std::span(&changes, 1), measures, options).front());
}

}  // namespace cephalo
