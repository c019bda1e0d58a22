#include "cephalo/effects/experiment_walk.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "cephalo/attention/attend.h"
#include "cephalo/linear/ops.h"

namespace cephalo {
namespace {

using Entry = Beginning::Entry;

// Hidden rows of the MLP that are there at a time: they stay in the cache between its two products.
constexpr dim_t kMlpRows = 768;

TensorView columns_of(const TensorView& rows, dim_t head, dim_t head_dim) {
  return rows.slice(1, head * head_dim, (head + 1) * head_dim);
}

// rows: [tokens, heads · head_dim] as [batch, heads, tokens, head_dim], the same for all of a batch
TensorView heads_for_all(const TensorView& rows, dim_t batch, dim_t head_dim) {
  return {rows.data(),
          rows.dtype(),
          {batch, rows.dim(1) / head_dim, rows.dim(0), head_dim},
          {0, head_dim, rows.strides()[0], 1}};
}

// a, b: [rows, head_dim] -> one after the other
Tensor stacked(const TensorView& a, const TensorView& b) {
  Tensor both = Tensor::empty({a.dim(0) + b.dim(0), a.dim(1)}, a.dtype());
  ops::copy(a, both.mutable_view().slice(0, 0, a.dim(0)));
  ops::copy(b, both.mutable_view().slice(0, a.dim(0), both.dim(0)));
  return both;
}

}  // namespace

ExperimentWalk::ExperimentWalk(const KeptPass& text, const SweepOptions& options,
                               const Beginning& beginning, const WantedRows& wanted)
    : text_(text),
      steps_(*text.steps()),
      o_(text.options()),
      options_(options),
      beginning_(beginning),
      wanted_(wanted),
      end_(wanted.all || beginning.whole ? text.tokens() : wanted.position + 1),
      single_(beginning.single),
      halves_(false) {}

std::size_t ExperimentWalk::bytes_of_row() const {
  const dim_t numbers = 5 * o_.d_model + steps_.qkv_width() + 2 * o_.num_heads;
  return static_cast<std::size_t>(numbers) * item_size(o_.dtype);
}

void ExperimentWalk::reserve(dim_t rows, PassMemory& memory) {
  memory.begin();
  for (MutableTensorView* t : {&x_, &normed_, &y_, &context_, &earlier_context_}) {
    *t = memory.take({rows, o_.d_model}, o_.dtype);
  }
  for (MutableTensorView* t : {&lse_, &earlier_lse_}) {
    *t = memory.take({rows * o_.num_heads}, o_.dtype);
  }
  qkv_ = memory.take({rows, steps_.qkv_width()}, o_.dtype);
  hidden_ = memory.take({std::min(rows, kMlpRows), o_.d_mlp}, o_.dtype);
}

bool ExperimentWalk::is_narrow(dim_t layer) const {
  return layer + 1 == o_.num_layers && !wanted_.all && !beginning_.whole;
}

void ExperimentWalk::run(std::span<const Changes* const> experiments) {
  branches_ = Branches(experiments);
  single_ = beginning_.single;
  added_ = {};
  dim_t layer = beginning_.layer;
  enter(layer);
  if (beginning_.entry != Entry::resid_pre) {
    if (beginning_.entry == Entry::resid_mid) mlp(layer);
    ++layer;
  }
  for (; layer < o_.num_layers; ++layer) {
    attention(layer);
    mlp(layer);
  }
  steps_.last_norm({used(x_), added_, used(normed_)});
  part(branches_.part_all(), {normed_});
}

// The stream where it is changed first, from what is kept.
void ExperimentWalk::enter(dim_t layer) {
  const KeptPass::Layer& kept = text_.layer(layer);
  const bool after_attention = beginning_.entry != Entry::resid_pre;
  branches_.part(layer, after_attention ? ChangeStage::rest : ChangeStage::stream);
  runs_.clear();
  for (dim_t r = 0; r < branches_.count(); ++r) {
    const dim_t first = first_row(changes(r));
    append_run(runs_, single_ ? 1 : end_ - first, first);
  }
  if (after_attention && !single_ && is_narrow(layer)) set_narrow();
  for (dim_t r = 0; r < branches_.count(); ++r) {
    const bool attended = after_attention && !removes(changes(r), layer, ModelSection::attention);
    const Tensor& from = attended ? kept.resid_mid : kept.resid_pre;
    const RunRows& rows = at(runs_, r);
    ops::copy(from.slice(0, rows.first, rows.first + rows.tokens), of(x_, r));
    if (attended) add_kept_changes(layer, r);
  }
}

// What heads of the kept pass add to the stream by their changes, to x of a run.
void ExperimentWalk::add_kept_changes(dim_t layer, dim_t run) const {
  const KeptPass::Layer& kept = text_.layer(layer);
  const dim_t dim = o_.head_dim();
  const dim_t first = at(runs_, run).first;
  const dim_t end = first + at(runs_, run).tokens;
  const TensorView k = kept.qkv.slice(1, o_.d_model, o_.d_model + o_.kv_width());
  const TensorView v = kept.qkv.slice(1, o_.d_model + o_.kv_width(), steps_.qkv_width());
  for (const HeadChange& change : head_changes(changes(run), layer)) {
    const dim_t kv_head = change.head / (o_.num_heads / o_.num_kv_heads);
    const TensorView whole = columns_of(kept.context, change.head, dim);
    add_change(layer, change,
               {.q = columns_of(kept.qkv, change.head, dim).slice(0, first, end),
                .k = columns_of(k, kv_head, dim).slice(0, 0, end),
                .v = columns_of(v, kv_head, dim).slice(0, 0, end),
                .before = whole.slice(0, first, end),
                .whole = whole},
               run, of(x_, run));
  }
}

// The same of a run that has left it, to what its attention adds; heads and context are those of
// the run `from`, where it comes from.
void ExperimentWalk::add_changes(dim_t layer, dim_t run, dim_t from) const {
  const dim_t dim = o_.head_dim();
  const QkvHeads all = heads({from, from + 1});
  const dim_t earlier = at(keys_, from).first;
  const TensorView kept = text_.layer(layer).qkv.slice(0, 0, earlier);
  const MutableTensorView context_rows = of(context_, contexts_, {from, from + 1});
  for (const HeadChange& change : head_changes(changes(run), layer)) {
    const dim_t kv_head = change.head / (o_.num_heads / o_.num_kv_heads);
    const TensorView context = columns_of(context_rows, change.head, dim);
    HeadRun head{.q = all.q[0][change.head],
                 .k = all.k[0][kv_head],
                 .v = all.v[0][kv_head],
                 .before = context,
                 .whole = context};
    Tensor k, v;
    if (earlier > 0) {
      const dim_t begin = o_.d_model + kv_head * dim;
      k = stacked(kept.slice(1, begin, begin + dim), head.k);
      v = stacked(kept.slice(1, begin + o_.kv_width(), begin + o_.kv_width() + dim), head.v);
      head.k = k;
      head.v = v;
    }
    add_change(layer, change, head, run, of(y_, run));
  }
}

// One head's, to x: [tokens, d_model]
void ExperimentWalk::add_change(dim_t layer, const HeadChange& change, HeadRun head, dim_t run,
                                const MutableTensorView& x) const {
  const dim_t dim = o_.head_dim();
  const RunRows& rows = at(runs_, run);
  HeadGiven given;
  if (options_.patch_from != nullptr) {
    given.patch = columns_of(options_.patch_from->layer(layer).context, change.head, dim)
                      .slice(0, rows.first, rows.first + rows.tokens);
  }
  if (options_.reference != nullptr) {
    given.reference =
        options_.reference->select(0, layer).slice(0, change.head * dim, (change.head + 1) * dim);
  }
  head.first = rows.first;
  steps_.add_projected(layer, change.head, context_change(change, head, given), x);
}

void ExperimentWalk::attention(dim_t layer) {
  patch_streams(layer);
  steps_.norm_1(layer, {used(x_), added_, used(normed_)});
  added_ = {};
  halves_ = !single_ && is_narrow(layer);
  if (halves_) {
    project_narrow();
  } else {
    project(layer);
  }
  contexts_ = runs_;
  for (const Batch& batch : batches()) attend(layer, batch);
  steps_.project_out(layer, used(context_), used(y_));
  change_runs(layer);
  added_ = used(y_);
}

// Rows of resid_pre that come from another run.
void ExperimentWalk::patch_streams(dim_t layer) {
  const auto experiments = branches_.experiments();
  const auto patched = [&](const Changes* changes) { return patches_stream(*changes, layer); };
  if (std::none_of(experiments.begin(), experiments.end(), patched)) return;
  if (added_.numel() > 0) steps_.norm_1(layer, {used(x_), added_, used(normed_)});
  added_ = {};
  part(branches_.part(layer, ChangeStage::stream), {x_});
  for (dim_t r = 0; r < branches_.count(); ++r) {
    const RunRows& rows = at(runs_, r);
    for (const Change& c : changes_at(changes(r), layer, ChangeStage::stream)) {
      const dim_t last = rows.first + rows.tokens;
      const dim_t begin = std::max(c.position, rows.first);
      const dim_t end = c.position < 0 ? last : std::min(c.position + 1, last);
      if (begin >= end) continue;
      ops::copy(options_.patch_from->layer(layer).resid_pre.slice(0, begin, end),
                of(x_, r).slice(0, begin - rows.first, end - rows.first));
    }
  }
}

// q, k and v of the rows that are there; of a single row's successors what is kept.
void ExperimentWalk::project(dim_t layer) {
  keys_ = runs_;
  const std::vector<Batch> all = batches();
  const auto rows_of_batch = [&](const Batch& batch) {
    const RunRows& rows = at(runs_, batch.begin);
    return StepRows{batch.count(), rows.tokens, rows.first};
  };
  if (all.size() == 1) {
    steps_.project_rotated(layer, used(normed_), used(qkv_), rows_of_batch(all.front()));
  } else {
    steps_.project(layer, used(normed_), used(qkv_));
    for (const Batch& batch : all) {
      const StepRows rows = rows_of_batch(batch);
      steps_.rotate(steps_.heads(of(qkv_, runs_, batch), rows), rows);
    }
  }
  if (single_) widen(layer);
}

// The row of each run becomes the first of its sequence, before those that are kept.
void ExperimentWalk::widen(dim_t layer) {
  const KeptPass::Layer& kept = text_.layer(layer);
  RunLayout wide;
  for (const RunRows& run : runs_) append_run(wide, end_ - run.first, run.first);
  const auto fill = [&](const MutableTensorView& rows, const TensorView& from) {
    for (dim_t r = std::ssize(wide); r-- > 0;) {
      const MutableTensorView to = of(rows, wide, {r, r + 1});
      if (r > 0) ops::copy(rows[r], to[0]);
      if (to.dim(0) > 1) {
        ops::copy(from.slice(0, at(wide, r).first + 1, end_), to.slice(0, 1, to.dim(0)));
      }
    }
  };
  fill(qkv_, kept.qkv);
  fill(x_, kept.resid_pre);
  runs_ = wide;
  keys_ = wide;
  single_ = false;
  if (!is_narrow(layer)) return;
  narrow(x_);
  set_narrow();
}

// Keys and values of all rows, and from here on the row of each run that is wanted.
void ExperimentWalk::project_narrow() {
  keys_ = runs_;
  const dim_t rows = rows_of(keys_);
  auto* memory = static_cast<std::byte*>(qkv_.mutable_data());
  const dim_t item = static_cast<dim_t>(item_size(o_.dtype));
  kv_ = {memory, o_.dtype, {rows, 2 * o_.kv_width()}};
  q_ = {memory + rows * 2 * o_.kv_width() * item, o_.dtype, {std::ssize(runs_), o_.d_model}};
  steps_.project_last_kv(used(normed_), kv_);
  for (const Batch& batch : batches()) {
    const RunRows& first = at(keys_, batch.begin);
    steps_.rotate(steps_.kv_heads(of(kv_, keys_, batch), batch.count()).k,
                  {batch.count(), first.tokens, first.first});
  }
  narrow(x_);
  narrow(normed_);
  set_narrow();
  steps_.project_last_q(used(normed_), q_);
  steps_.rotate(steps_.query_heads(q_, q_.dim(0)), {q_.dim(0), 1, wanted_.position});
}

// The row that is wanted of each run moves to the front.
void ExperimentWalk::narrow(const MutableTensorView& rows) const {
  for (dim_t r = 0; r < std::ssize(runs_); ++r) {
    const dim_t from = at(runs_, r).at + wanted_.position - at(runs_, r).first;
    if (from != r) ops::copy(rows[from], rows[r]);
  }
}

void ExperimentWalk::set_narrow() {
  for (dim_t r = 0; r < std::ssize(runs_); ++r) {
    runs_[static_cast<std::size_t>(r)] = {r, 1, wanted_.position};
  }
}

std::vector<ExperimentWalk::Batch> ExperimentWalk::batches() const {
  std::vector<Batch> found;
  for (dim_t r = 0; r < std::ssize(keys_); ++r) {
    if (r > 0 && at(keys_, r).first == at(keys_, r - 1).first) {
      found.back().end = r + 1;
    } else {
      found.push_back({r, r + 1});
    }
  }
  return found;
}

MutableTensorView ExperimentWalk::of(const MutableTensorView& t, const RunLayout& runs,
                                     const Batch& batch) {
  const RunRows& last = runs[static_cast<std::size_t>(batch.end - 1)];
  return t.slice(0, runs[static_cast<std::size_t>(batch.begin)].at, last.at + last.tokens);
}

// q of the rows that are wanted, k and v of all that the runs have.
QkvHeads ExperimentWalk::heads(const Batch& batch) const {
  const dim_t count = batch.count();
  if (halves_) {
    const KvHeads own = steps_.kv_heads(of(kv_, keys_, batch), count);
    return {steps_.query_heads(q_.slice(0, batch.begin, batch.end), count), own.k, own.v};
  }
  const RunRows& keys = at(keys_, batch.begin);
  QkvHeads all = steps_.heads(of(qkv_, keys_, batch), {count, keys.tokens, keys.first});
  const RunRows& rows = at(contexts_, batch.begin);
  const dim_t begin = rows.first - keys.first;
  all.q = all.q.slice(2, begin, begin + rows.tokens);
  return all;
}

// Keys before the first row are the same for all runs, and stay where they are kept.
void ExperimentWalk::attend(dim_t layer, const Batch& batch) {
  const QkvHeads own = heads(batch);
  const MutableTensorView context = of(context_, contexts_, batch);
  const dim_t earlier = at(keys_, batch.begin).first;
  if (earlier == 0) return steps_.attend(own.q, own.k, own.v, context);
  const Shape rows{batch.count(), o_.num_heads, own.q.dim(2)};
  const MutableTensorView lse(lse_.mutable_data(), o_.dtype, rows);
  const MutableTensorView earlier_lse(earlier_lse_.mutable_data(), o_.dtype, rows);
  const MutableTensorView earlier_context = earlier_context_.slice(0, 0, context.dim(0));
  const TensorView kept = text_.layer(layer).qkv.slice(0, 0, earlier);
  const dim_t k_end = o_.d_model + o_.kv_width();
  steps_.attend(own.q, own.k, own.v, context, lse);
  attend_into(
      {steps_.query_heads(earlier_context, batch.count()), earlier_lse}, own.q,
      heads_for_all(kept.slice(1, o_.d_model, k_end), batch.count(), o_.head_dim()),
      heads_for_all(kept.slice(1, k_end, steps_.qkv_width()), batch.count(), o_.head_dim()));
  ops::join_contexts({context, lse, earlier_context, earlier_lse});
}

// What this layer's attention adds, run by run.
void ExperimentWalk::change_runs(dim_t layer) {
  const std::vector<dim_t> from = branches_.part(layer, ChangeStage::rest);
  part(from, {x_, y_});
  for (dim_t r = 0; r < branches_.count(); ++r) {
    if (removes(changes(r), layer, ModelSection::attention)) {
      ops::zero(of(y_, r));
    } else {
      add_changes(layer, r, from[static_cast<std::size_t>(r)]);
    }
  }
}

void ExperimentWalk::mlp(dim_t layer) {
  steps_.norm_2(layer, {used(x_), added_, used(normed_)});
  const dim_t rows = rows_of(runs_);
  for (dim_t begin = 0; begin < rows; begin += kMlpRows) {
    const dim_t end = std::min(begin + kMlpRows, rows);
    const MutableTensorView hidden = hidden_.slice(0, 0, end - begin);
    steps_.mlp(layer, normed_.slice(0, begin, end), hidden, hidden, y_.slice(0, begin, end));
  }
  for (dim_t r = 0; r < branches_.count(); ++r) {
    if (removes(changes(r), layer, ModelSection::mlp)) ops::zero(of(y_, r));
  }
  added_ = used(y_);
}

// Runs have parted: `rows` of each become those of the run that it comes from. From the last on,
// and from the last row on, as nothing comes from further behind.
void ExperimentWalk::part(const std::vector<dim_t>& from,
                          std::initializer_list<MutableTensorView> rows) {
  RunLayout parted;
  for (const dim_t source : from)
    append_run(parted, at(runs_, source).tokens, at(runs_, source).first);
  for (const MutableTensorView& each : rows) {
    for (dim_t r = std::ssize(parted); r-- > 0;) {
      const dim_t begin = at(runs_, from[static_cast<std::size_t>(r)]).at;
      const RunRows& to = at(parted, r);
      if (begin == to.at) continue;
      if (begin + to.tokens <= to.at) {
        ops::copy(each.slice(0, begin, begin + to.tokens), each.slice(0, to.at, to.at + to.tokens));
        continue;
      }
      for (dim_t i = to.tokens; i-- > 0;) ops::copy(each[begin + i], each[to.at + i]);
    }
  }
  runs_ = std::move(parted);
}

}  // namespace cephalo
