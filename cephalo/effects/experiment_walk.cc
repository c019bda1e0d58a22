#include "cephalo/effects/experiment_walk.h"

#include <algorithm>
#include <vector>

#include "cephalo/effects/head_change.h"
#include "cephalo/linear/ops.h"

namespace cephalo {
namespace {

using Entry = Beginning::Entry;

// Hidden rows of the MLP that are there at a time.
constexpr dim_t kMlpRows = 768;

bool acts_on_context(const Change& c) {
  return c.section == ModelSection::head || c.section == ModelSection::edge;
}

// Is what this part of a layer adds to the stream gone?
bool removes(const Changes& changes, dim_t layer, ModelSection section) {
  return std::any_of(changes.begin(), changes.end(), [&](const Change& c) {
    return c.layer == layer && (c.section == section || c.section == ModelSection::layer);
  });
}

bool has_at(const Changes& changes, dim_t layer, ModelSection section) {
  return std::any_of(changes.begin(), changes.end(),
                     [&](const Change& c) { return c.layer == layer && c.section == section; });
}

dim_t first_row(const Change& c) {
  if (c.section == ModelSection::edge) return c.query;
  return c.section == ModelSection::stream ? std::max<dim_t>(c.position, 0) : 0;
}

// Calls visit(head, its changes) for each head of a layer whose context is changed; edges come
// query by query.
template <typename Visit>
void for_changed_heads(const Changes& changes, dim_t layer, const Visit& visit) {
  for (std::size_t n = 0; n < changes.size(); ++n) {
    const Change& c = changes[n];
    if (c.layer != layer || !acts_on_context(c)) continue;
    std::vector<Change> together;
    bool seen = false;
    for (std::size_t m = 0; m < changes.size(); ++m) {
      const Change& other = changes[m];
      if (other.layer != layer || !acts_on_context(other) || other.head != c.head) continue;
      if (other.query != c.query) continue;
      seen = seen || m < n;
      together.push_back(other);
    }
    if (!seen) visit(c.head, together);
  }
}

void apply(const std::vector<Change>& changes, const HeadRun& run, const HeadGiven& given) {
  if (changes.front().section == ModelSection::edge) return change_edges(changes, run);
  change_head(changes.front(), run, given);
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

TensorView head_columns(const TensorView& rows, dim_t head, dim_t head_dim) {
  return rows.slice(1, head * head_dim, (head + 1) * head_dim);
}

HeadGiven given_to(const SweepOptions& options, const GptOptions& o, dim_t layer, dim_t head,
                   const StepRows& rows) {
  HeadGiven given;
  if (options.patch_from != nullptr) {
    given.patch = head_columns(options.patch_from->layer(layer).context, head, o.head_dim())
                      .slice(0, rows.first, rows.first + rows.tokens);
  }
  if (options.reference != nullptr) {
    given.reference = options.reference->select(0, layer).slice(0, head * o.head_dim(),
                                                                (head + 1) * o.head_dim());
  }
  return given;
}

}  // namespace

Beginning beginning_of(const Changes& changes) {
  Beginning b{.layer = changes.front().layer, .first = first_row(changes.front())};
  for (const Change& c : changes) {
    b.layer = std::min(b.layer, c.layer);
    b.first = std::min(b.first, first_row(c));
  }
  if (has_at(changes, b.layer, ModelSection::stream)) {
    b.entry = Entry::resid_pre;
  } else if (removes(changes, b.layer, ModelSection::mlp)) {
    b.entry = Entry::resid_post;
  }
  b.whole = std::any_of(changes.begin(), changes.end(), [&](const Change& c) {
    return c.kind == ChangeKind::mean && (c.layer > b.layer || b.entry == Entry::resid_pre);
  });
  return b;
}

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
               : wanted.position + 1) {}

std::size_t ExperimentWalk::bytes_each() const {
  const dim_t numbers = rows_each() * (4 * o_.d_model + steps_.qkv_width() + o_.d_mlp) +
                        (first_ > 0 ? 2 * end_ * o_.kv_width() : 0);
  return static_cast<std::size_t>(numbers) * item_size(o_.dtype);
}

void ExperimentWalk::reserve(dim_t experiments) {
  const dim_t rows = experiments * rows_each();
  for (Tensor* t : {&x_, &normed_, &y_, &context_})
    *t = Tensor::empty({rows, o_.d_model}, o_.dtype);
  qkv_ = Tensor::empty({rows, steps_.qkv_width()}, o_.dtype);
  hidden_ = Tensor::empty({std::min(rows, kMlpRows), o_.d_mlp}, o_.dtype);
  if (first_ > 0) kv_ = Tensor::empty({experiments * end_, 2 * o_.kv_width()}, o_.dtype);
}

bool ExperimentWalk::is_narrow(dim_t layer) const {
  return layer + 1 == o_.num_layers && !wanted_.all && !beginning_.whole;
}

void ExperimentWalk::run(std::span<const Changes* const> experiments) {
  experiments_ = experiments;
  rows_ = {std::ssize(experiments), rows_each(), first_};
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
}

// The stream where it is changed first, from what is kept.
void ExperimentWalk::enter(dim_t layer) {
  const KeptPass::Layer& kept = text_.layer(layer);
  const bool after_attention = beginning_.entry != Entry::resid_pre;
  if (after_attention && is_narrow(layer)) rows_ = {rows_.batch, 1, wanted_.position};
  for (dim_t e = 0; e < rows_.batch; ++e) {
    const bool attended = after_attention && !removes(changes(e), layer, ModelSection::attention);
    const Tensor& from = attended ? kept.resid_mid : kept.resid_pre;
    ops::copy(from.slice(0, rows_.first, rows_.first + rows_.tokens), of(x_, e));
    if (attended) add_changes(layer, changes(e), of(x_, e));
  }
}

// What heads of a layer add to the stream by their changes. x: [tokens, d_model]
void ExperimentWalk::add_changes(dim_t layer, const Changes& changes,
                                 const MutableTensorView& x) const {
  const KeptPass::Layer& kept = text_.layer(layer);
  const dim_t dim = o_.head_dim();
  const dim_t end = rows_.first + rows_.tokens;
  for_changed_heads(changes, layer, [&](dim_t head, const std::vector<Change>& together) {
    const dim_t kv_head = head / (o_.num_heads / o_.num_kv_heads);
    const TensorView k = kept.qkv.slice(1, o_.d_model, o_.d_model + o_.kv_width());
    const TensorView v = kept.qkv.slice(1, o_.d_model + o_.kv_width(), steps_.qkv_width());
    const TensorView whole = head_columns(kept.context, head, dim);
    const TensorView before = whole.slice(0, rows_.first, end);
    Tensor dcontext = Tensor::copy(before);
    apply(together,
          {.q = head_columns(kept.qkv, head, dim).slice(0, rows_.first, end),
           .k = head_columns(k, kv_head, dim).slice(0, 0, end),
           .v = head_columns(v, kv_head, dim).slice(0, 0, end),
           .whole = whole,
           .context = dcontext,
           .first = rows_.first},
          given_to(options_, o_, layer, head, rows_));
    o_.dtype == DType::f64 ? subtract<double>(dcontext, before) : subtract<float>(dcontext, before);
    steps_.add_projected(layer, head, dcontext, x);
  });
}

void ExperimentWalk::attention(dim_t layer) {
  patch_streams(layer);
  steps_.norm_1(layer, {used(x_), added_, used(normed_)});
  added_ = {};
  KvHeads own;
  const MutableTensorView q = is_narrow(layer) ? project_narrow(&own) : project(layer, &own);
  const Keys keys = after_earlier(layer, own);
  steps_.attend(q, keys.k, keys.v, used(context_));
  change_contexts(layer, q, keys);
  steps_.project_out(layer, used(context_), used(y_));
  clear_removed(layer, ModelSection::attention);
  added_ = used(y_);
}

// Rows of resid_pre that come from another run.
void ExperimentWalk::patch_streams(dim_t layer) {
  bool complete = added_.numel() == 0;
  for (dim_t e = 0; e < rows_.batch; ++e) {
    for (const Change& c : changes(e)) {
      if (c.layer != layer || c.section != ModelSection::stream) continue;
      if (!complete) steps_.norm_1(layer, {used(x_), added_, used(normed_)});
      added_ = {};
      complete = true;
      const dim_t begin = c.position < 0 ? first_ : c.position;
      const dim_t end = c.position < 0 ? end_ : std::min(c.position + 1, end_);
      if (begin >= end) continue;
      ops::copy(options_.patch_from->layer(layer).resid_pre.slice(0, begin, end),
                of(x_, e).slice(0, begin - first_, end - first_));
    }
  }
}

// -> q: [batch, num_heads, tokens, head_dim]
MutableTensorView ExperimentWalk::project(dim_t layer, KvHeads* own) {
  steps_.project_rotated(layer, used(normed_), used(qkv_), rows_);
  const QkvHeads heads = steps_.heads(used(qkv_), rows_);
  *own = {heads.k, heads.v};
  return heads.q;
}

// Keys and values of all rows, and from here on the one row that is wanted.
MutableTensorView ExperimentWalk::project_narrow(KvHeads* own) {
  const MutableTensorView kv(qkv_.mutable_view().mutable_data(), o_.dtype,
                             {rows_.rows(), 2 * o_.kv_width()});
  steps_.project_last_kv(used(normed_), kv, rows_);
  *own = steps_.kv_heads(kv, rows_.batch);
  narrow(x_);
  narrow(normed_);
  rows_ = {rows_.batch, 1, wanted_.position};
  // A row of y is free until the output projection.
  steps_.project_last_q(used(normed_), used(y_), rows_);
  return steps_.query_heads(used(y_), rows_.batch);
}

// That row of each experiment moves to the front.
void ExperimentWalk::narrow(Tensor& rows) const {
  for (dim_t e = 0; e < rows_.batch; ++e) {
    const dim_t from = e * rows_.tokens + wanted_.position - rows_.first;
    if (from != e) ops::copy(rows[from], rows.mutable_view()[e]);
  }
}

ExperimentWalk::Keys ExperimentWalk::after_earlier(dim_t layer, const KvHeads& own) {
  if (first_ == 0) return {own.k, own.v};
  const TensorView& kept = text_.layer(layer).qkv;
  const TensorView earlier =
      kept.slice(0, 0, first_).slice(1, o_.d_model, o_.d_model + 2 * o_.kv_width());
  const dim_t experiments = rows_.batch;
  for (dim_t e = 0; e < experiments; ++e) {
    ops::copy(earlier, kv_.mutable_view().slice(0, e * end_, e * end_ + first_));
  }
  const KvHeads all =
      steps_.kv_heads(kv_.mutable_view().slice(0, 0, experiments * end_), experiments);
  ops::copy(own.k, all.k.slice(2, first_, end_));
  ops::copy(own.v, all.v.slice(2, first_, end_));
  return {all.k, all.v};
}

// q: [batch, num_heads, tokens, head_dim]
void ExperimentWalk::change_contexts(dim_t layer, const TensorView& q, const Keys& keys) {
  for (dim_t e = 0; e < rows_.batch; ++e) {
    const MutableTensorView context = of(context_, e);
    for_changed_heads(changes(e), layer, [&](dim_t head, const std::vector<Change>& together) {
      const dim_t kv_head = head / (o_.num_heads / o_.num_kv_heads);
      const MutableTensorView rows =
          context.slice(1, head * o_.head_dim(), (head + 1) * o_.head_dim());
      apply(together,
            {.q = q[e][head],
             .k = keys.k[e][kv_head],
             .v = keys.v[e][kv_head],
             .whole = rows,
             .context = rows,
             .first = rows_.first},
            given_to(options_, o_, layer, head, rows_));
    });
  }
}

void ExperimentWalk::mlp(dim_t layer) {
  steps_.norm_2(layer, {used(x_), added_, used(normed_)});
  for (dim_t begin = 0; begin < rows_.rows(); begin += kMlpRows) {
    const dim_t end = std::min(begin + kMlpRows, rows_.rows());
    const MutableTensorView hidden = hidden_.mutable_view().slice(0, 0, end - begin);
    steps_.mlp(layer, used(normed_).slice(0, begin, end), hidden, hidden,
               used(y_).slice(0, begin, end));
  }
  clear_removed(layer, ModelSection::mlp);
  added_ = used(y_);
}

void ExperimentWalk::clear_removed(dim_t layer, ModelSection section) {
  for (dim_t e = 0; e < rows_.batch; ++e) {
    if (removes(changes(e), layer, section)) ops::zero(of(y_, e));
  }
}

}  // namespace cephalo
