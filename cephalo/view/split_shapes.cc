#include "cephalo/view/split_shapes.h"

#include <algorithm>

#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

// The axes of one sequence, with the batch before them where x has one.
Shape batched(const HeadSplit& split, std::initializer_list<dim_t> axes) {
  Shape shape;
  if (split.batch > 0) shape.push_back(split.batch);
  for (const dim_t axis : axes) shape.push_back(axis);
  return shape;
}

void check(const HeadSplit& s) {
  require(s.batch >= 0 && std::min({s.q_tokens, s.kv_tokens, s.num_heads, s.num_kv_heads,
                                    s.head_dim, s.v_dim}) > 0,
          "split: {} tokens, {} keys, {} heads of {}, {} key heads and values of {} must be > 0",
          s.q_tokens, s.kv_tokens, s.num_heads, s.head_dim, s.num_kv_heads, s.v_dim);
  require(s.num_heads % s.num_kv_heads == 0,
          "split: num_heads ({}) must be a multiple of num_kv_heads ({})", s.num_heads,
          s.num_kv_heads);
}

}  // namespace

std::optional<HeadSplit> head_split(const Trace& trace) {
  if (!trace.has("q_split")) return std::nullopt;
  const Shape& q = trace.at("q_heads").shape;
  const Shape& v = trace.at("v_heads").shape;
  return HeadSplit{.batch = q.rank() == 4 ? q[0] : 0,
                   .q_tokens = q[-2],
                   .kv_tokens = v[-2],
                   .num_heads = q[-3],
                   .num_kv_heads = v[-3],
                   .head_dim = q[-1],
                   .v_dim = v[-1]};
}

SplitShapes shapes_of(const HeadSplit& s) {
  check(s);
  return {.q = batched(s, {s.q_tokens, checked_mul(s.num_heads, s.head_dim)}),
          .split = batched(s, {s.q_tokens, s.num_heads, s.head_dim}),
          .heads = batched(s, {s.num_heads, s.q_tokens, s.head_dim}),
          .keys = batched(s, {s.num_kv_heads, s.head_dim, s.kv_tokens}),
          .scores = batched(s, {s.num_heads, s.q_tokens, s.kv_tokens}),
          .values = batched(s, {s.num_kv_heads, s.kv_tokens, s.v_dim}),
          .context_heads = batched(s, {s.num_heads, s.q_tokens, s.v_dim}),
          .context = batched(s, {s.q_tokens, checked_mul(s.num_heads, s.v_dim)}),
          .tokens_axis = s.batch > 0 ? 1 : 0};
}

SplitSteps steps_of(const HeadSplit& s) {
  const SplitShapes shapes = shapes_of(s);
  const int axis = shapes.tokens_axis;
  const std::string turned = format_text("transpose({}, {})", axis, axis + 1);
  const std::string shared =
      s.num_kv_heads == s.num_heads
          ? ""
          : format_text("; {} heads share a key head", s.num_heads / s.num_kv_heads);
  return {
      .project = {"1", "PROJECT", format_text("q {}", to_tuple_string(shapes.q)),
                  format_text("{} numbers for each token", shapes.q[-1])},
      .split = {"2", "SPLIT", format_text("q.view{}", to_tuple_string(shapes.split)),
                format_text("the same numbers in {} pieces of {}", s.num_heads, s.head_dim)},
      .transpose = {"3", "TRANSPOSE", "q." + turned, "the pieces of one head come together"},
      .scores = {"4a", "SCORES", format_text("q @ k.transpose({}, {})", axis + 1, axis + 2),
                 "in each head, every query with every key" + shared},
      .values = {"4d", "VALUES", "weights @ v", "in each head, the values mixed by the weights"},
      .concat = {"5", "CONCAT",
                 format_text("{}.contiguous().view{}", turned, to_tuple_string(shapes.context)),
                 "one row again"}};
}

std::vector<std::optional<dim_t>> shown_of(dim_t count, dim_t most) {
  const bool all = count <= most;
  std::vector<std::optional<dim_t>> shown;
  for (dim_t k = 0; k < (all ? count : most - 2); ++k) shown.emplace_back(k);
  if (!all) {
    shown.emplace_back(std::nullopt);
    shown.emplace_back(count - 1);
  }
  return shown;
}

std::string token_name(const HeadSplit& split, dim_t i) {
  return i < std::ssize(split.tokens) ? split.tokens[static_cast<std::size_t>(i)]
                                      : format_text("{}", i);
}

}  // namespace cephalo
