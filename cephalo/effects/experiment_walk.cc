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

// a −= b, of one shape
template <typename T>
void subtract(const MutableTensorView& a, const TensorView& b) {
  for (dim_t i = 0; i < a.dim(0); ++i) {
    T* to = a.mutable_data_as<T>() + i * a.strides()[0];
    const T* from = b.data_as<T>() + i * b.strides()[0];
    for (dim_t d = 0; d < a.dim(1); ++d) to[d] -= from[d];
  }
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
      first_(beginning.first),
      end_(wanted.all || (beginning.whole && beginning.first <= wanted.position)
               ? text.tokens()
               : wanted.position + 1),
      single_(beginning.single) {}

std::size_t ExperimentWalk::bytes_each() const {
  dim_t numbers = rows_each() * (4 * o_.d_model + steps_.qkv_width());
  if (first_ > 0) numbers += rows_each() * (o_.d_model + 2 * o_.num_heads);
  return static_cast<std::size_t>(numbers) * item_size(o_.dtype);
}

void ExperimentWalk::reserve(dim_t experiments, PassMemory& memory) {
  const dim_t rows = experiments * rows_each();
  memory.begin();
  for (MutableTensorView* t : {&x_, &normed_, &y_, &context_}) {
    *t = memory.take({rows, o_.d_model}, o_.dtype);
  }
  qkv_ = memory.take({rows, steps_.qkv_width()}, o_.dtype);
  hidden_ = memory.take({std::min(rows, kMlpRows), o_.d_mlp}, o_.dtype);
  if (first_ == 0) return;
  earlier_context_ = memory.take({rows, o_.d_model}, o_.dtype);
  lse_ = memory.take({rows * o_.num_heads}, o_.dtype);
  earlier_lse_ = memory.take({rows * o_.num_heads}, o_.dtype);
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
  rows_ = {1, single_ ? 1 : rows_each(), first_};
  if (after_attention && !single_ && is_narrow(layer)) rows_ = {1, 1, wanted_.position};
  part(branches_.part(layer, after_attention ? ChangeStage::rest : ChangeStage::stream), {});
  for (dim_t r = 0; r < rows_.batch; ++r) {
    const bool attended = after_attention && !removes(changes(r), layer, ModelSection::attention);
    const Tensor& from = attended ? kept.resid_mid : kept.resid_pre;
    ops::copy(from.slice(0, rows_.first, rows_.first + rows_.tokens), of(x_, r));
    if (attended) add_kept_changes(layer, changes(r), of(x_, r));
  }
}

// What heads of the kept pass add to the stream by their changes. x: [tokens, d_model]
void ExperimentWalk::add_kept_changes(dim_t layer, const Changes& changes,
                                      const MutableTensorView& x) const {
  const KeptPass::Layer& kept = text_.layer(layer);
  const dim_t dim = o_.head_dim();
  const dim_t end = rows_.first + rows_.tokens;
  const TensorView k = kept.qkv.slice(1, o_.d_model, o_.d_model + o_.kv_width());
  const TensorView v = kept.qkv.slice(1, o_.d_model + o_.kv_width(), steps_.qkv_width());
  for (const HeadChange& change : head_changes(changes, layer)) {
    const dim_t kv_head = change.head / (o_.num_heads / o_.num_kv_heads);
    const TensorView whole = columns_of(kept.context, change.head, dim);
    add_change(layer, change,
               {.q = columns_of(kept.qkv, change.head, dim).slice(0, rows_.first, end),
                .k = columns_of(k, kv_head, dim).slice(0, 0, end),
                .v = columns_of(v, kv_head, dim).slice(0, 0, end),
                .before = whole.slice(0, rows_.first, end),
                .whole = whole},
               x);
  }
}

// The same of a run that has left it, where this layer's `heads` are.
void ExperimentWalk::add_changes(dim_t layer, const Changes& changes, const QkvHeads& heads,
                                 dim_t run, const MutableTensorView& x) const {
  const dim_t dim = o_.head_dim();
  for (const HeadChange& change : head_changes(changes, layer)) {
    const dim_t kv_head = change.head / (o_.num_heads / o_.num_kv_heads);
    const TensorView context = columns_of(of(context_, run), change.head, dim);
    HeadRun head{.q = heads.q[run][change.head],
                 .k = heads.k[run][kv_head],
                 .v = heads.v[run][kv_head],
                 .before = context,
                 .whole = context};
    if (first_ == 0) {
      add_change(layer, change, head, x);
      continue;
    }
    const TensorView kept = text_.layer(layer).qkv.slice(0, 0, first_);
    const dim_t begin = o_.d_model + kv_head * dim;
    const Tensor k = stacked(kept.slice(1, begin, begin + dim), head.k);
    const dim_t v_begin = begin + o_.kv_width();
    const Tensor v = stacked(kept.slice(1, v_begin, v_begin + dim), head.v);
    head.k = k;
    head.v = v;
    add_change(layer, change, head, x);
  }
}

// One head's; its context and rows are still to be filled in.
void ExperimentWalk::add_change(dim_t layer, const HeadChange& change, HeadRun run,
                                const MutableTensorView& x) const {
  const dim_t dim = o_.head_dim();
  HeadGiven given;
  if (options_.patch_from != nullptr) {
    given.patch = columns_of(options_.patch_from->layer(layer).context, change.head, dim)
                      .slice(0, rows_.first, rows_.first + rows_.tokens);
  }
  if (options_.reference != nullptr) {
    given.reference =
        options_.reference->select(0, layer).slice(0, change.head * dim, (change.head + 1) * dim);
  }
  Tensor dcontext = Tensor::copy(run.before);
  run.context = dcontext;
  run.first = rows_.first;
  change_head(change, run, given);
  o_.dtype == DType::f64 ? subtract<double>(dcontext, run.before)
                         : subtract<float>(dcontext, run.before);
  steps_.add_projected(layer, change.head, dcontext, x);
}

void ExperimentWalk::attention(dim_t layer) {
  patch_streams(layer);
  steps_.norm_1(layer, {used(x_), added_, used(normed_)});
  added_ = {};
  const QkvHeads heads = single_            ? project_single(layer)
                         : is_narrow(layer) ? project_narrow()
                                            : project(layer);
  attend(layer, heads);
  steps_.project_out(layer, used(context_), used(y_));
  change_runs(layer, heads);
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
  for (dim_t r = 0; r < rows_.batch; ++r) {
    for (const Change& c : changes_at(changes(r), layer, ChangeStage::stream)) {
      const dim_t begin = std::max(c.position, rows_.first);
      const dim_t last = rows_.first + rows_.tokens;
      const dim_t end = c.position < 0 ? last : std::min(c.position + 1, last);
      if (begin >= end) continue;
      ops::copy(options_.patch_from->layer(layer).resid_pre.slice(0, begin, end),
                of(x_, r).slice(0, begin - rows_.first, end - rows_.first));
    }
  }
}

QkvHeads ExperimentWalk::project(dim_t layer) {
  steps_.project_rotated(layer, used(normed_), used(qkv_), rows_);
  return steps_.heads(used(qkv_), rows_);
}

// The rows after the changed one are still those that are kept.
QkvHeads ExperimentWalk::project_single(dim_t layer) {
  project(layer);
  single_ = false;
  const KeptPass::Layer& kept = text_.layer(layer);
  rows_.tokens = rows_each();
  widen(qkv_, kept.qkv);
  widen(x_, kept.resid_pre);
  QkvHeads heads = steps_.heads(used(qkv_), rows_);
  if (!is_narrow(layer)) return heads;
  const dim_t at = wanted_.position - first_;
  heads.q = heads.q.slice(2, at, at + 1);
  narrow(x_);
  rows_ = {rows_.batch, 1, wanted_.position};
  return heads;
}

// Keys and values of all rows, and from here on the one row that is wanted.
QkvHeads ExperimentWalk::project_narrow() {
  const dim_t kv_numbers = rows_.rows() * 2 * o_.kv_width();
  auto* memory = static_cast<std::byte*>(qkv_.mutable_data());
  const MutableTensorView kv(memory, o_.dtype, {rows_.rows(), 2 * o_.kv_width()});
  steps_.project_last_kv(used(normed_), kv, rows_);
  const KvHeads own = steps_.kv_heads(kv, rows_.batch);
  narrow(x_);
  narrow(normed_);
  rows_ = {rows_.batch, 1, wanted_.position};
  const MutableTensorView q(memory + kv_numbers * static_cast<dim_t>(item_size(o_.dtype)), o_.dtype,
                            {rows_.batch, o_.d_model});
  steps_.project_last_q(used(normed_), q, rows_);
  return {steps_.query_heads(q, rows_.batch), own.k, own.v};
}

// One row of each run becomes the first of its sequence, before the kept ones.
void ExperimentWalk::widen(const MutableTensorView& rows, const TensorView& kept) const {
  for (dim_t r = rows_.batch; r-- > 0;) {
    const MutableTensorView to = of(rows, r);
    if (r > 0) ops::copy(rows[r], to[0]);
    if (rows_.tokens > 1) {
      ops::copy(kept.slice(0, first_ + 1, end_), to.slice(0, 1, rows_.tokens));
    }
  }
}

// The row that is wanted of each run moves to the front.
void ExperimentWalk::narrow(const MutableTensorView& rows) const {
  for (dim_t r = 0; r < rows_.batch; ++r) {
    const dim_t from = r * rows_.tokens + wanted_.position - rows_.first;
    if (from != r) ops::copy(rows[from], rows[r]);
  }
}

// Keys before the first row are the same for all runs, and stay where they are kept.
void ExperimentWalk::attend(dim_t layer, const QkvHeads& heads) {
  if (first_ == 0) return steps_.attend(heads.q, heads.k, heads.v, used(context_));
  const Shape rows{rows_.batch, o_.num_heads, rows_.tokens};
  const MutableTensorView lse(lse_.mutable_data(), o_.dtype, rows);
  const MutableTensorView earlier_lse(earlier_lse_.mutable_data(), o_.dtype, rows);
  const TensorView kept = text_.layer(layer).qkv.slice(0, 0, first_);
  const dim_t k_end = o_.d_model + o_.kv_width();
  steps_.attend(heads.q, heads.k, heads.v, used(context_), lse);
  attend_into({steps_.query_heads(used(earlier_context_), rows_.batch), earlier_lse}, heads.q,
              heads_for_all(kept.slice(1, o_.d_model, k_end), rows_.batch, o_.head_dim()),
              heads_for_all(kept.slice(1, k_end, steps_.qkv_width()), rows_.batch, o_.head_dim()));
  ops::join_contexts({used(context_), lse, used(earlier_context_), earlier_lse});
}

// What this layer's attention adds, run by run.
void ExperimentWalk::change_runs(dim_t layer, const QkvHeads& heads) {
  const std::vector<dim_t> from = branches_.part(layer, ChangeStage::rest);
  part(from, {x_, y_});
  for (dim_t r = 0; r < rows_.batch; ++r) {
    if (removes(changes(r), layer, ModelSection::attention)) {
      ops::zero(of(y_, r));
    } else {
      add_changes(layer, changes(r), heads, from[static_cast<std::size_t>(r)], of(y_, r));
    }
  }
}

void ExperimentWalk::mlp(dim_t layer) {
  steps_.norm_2(layer, {used(x_), added_, used(normed_)});
  for (dim_t begin = 0; begin < rows_.rows(); begin += kMlpRows) {
    const dim_t end = std::min(begin + kMlpRows, rows_.rows());
    const MutableTensorView hidden = hidden_.slice(0, 0, end - begin);
    steps_.mlp(layer, used(normed_).slice(0, begin, end), hidden, hidden,
               used(y_).slice(0, begin, end));
  }
  for (dim_t r = 0; r < rows_.batch; ++r) {
    if (removes(changes(r), layer, ModelSection::mlp)) ops::zero(of(y_, r));
  }
  added_ = used(y_);
}

// Runs have parted: `rows` of each become those of the run that it comes from. From the last on, as
// none comes from a later one.
void ExperimentWalk::part(const std::vector<dim_t>& from,
                          std::initializer_list<MutableTensorView> rows) {
  rows_.batch = std::ssize(from);
  for (const MutableTensorView& each : rows) {
    for (dim_t r = rows_.batch; r-- > 0;) {
      const dim_t source = from[static_cast<std::size_t>(r)];
      if (source != r) ops::copy(of(each, source), of(each, r));
    }
  }
}

}  // namespace cephalo
