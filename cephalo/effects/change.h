#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cephalo/model/gpt_options.h"

#pragma GCC visibility push(default)
namespace cephalo {

// A part of a model that an experiment changes.
enum class ModelSection {
  head,       // its context, before the output projection
  attention,  // of a layer: what it adds, bias included
  mlp,        // of a layer: what it adds, bias included
  layer,      // resid_post = resid_pre
  edge,       // query `query` of a head looks at key `key`
  stream      // resid_pre of a layer; with `position`, at that token alone
};

// What becomes of it. A head can be changed by all but hide and cut, an edge by those two, the
// stream by patch; attention, MLP and layer by zero.
enum class ChangeKind {
  zero,
  mean,            // of the context over all positions, as it is in the run that is changed
  reference_mean,  // of the context over all tokens of a reference text, one vector for each head
  uniform,         // weights 1 / (number of visible keys), values unchanged
  no_first,        // the score of key 0 is −inf, and the row adds up to 1 again; row 0 stays
  patch,           // what it is in another run
  scale,           // times `factor`
  hide,            // an edge: its score is −inf, and the row adds up to 1 again
  cut              // an edge: its weight is 0, and nothing else changes
};
const char* name(ChangeKind kind);  // "reference-mean"

// One change: which part, and what becomes of it.
struct Change {
  ModelSection section = ModelSection::head;
  dim_t layer = 0;
  dim_t head = 0;  // of head and edge
  ChangeKind kind = ChangeKind::zero;
  double factor = 1.0;  // of scale
  dim_t query = 0;      // of edge
  dim_t key = 0;
  dim_t position = -1;  // of stream; −1: all tokens
  bool operator==(const Change&) const = default;
};

// Made together, in one run: each where the run comes by, on what changes before it have left.
using Changes = std::vector<Change>;

// "L3H2", "L3", "L3.attention", "L3.mlp", "L3H2:12>4" (query 12, key 4), "L3.stream",
// "L3.stream:12" (at token 12), joined by commas, all of one kind; of an edge zero means hide. An
// error says what is wrong and shows the form.
Changes parse_changes(std::string_view text, ChangeKind kind, double factor = 1.0);
std::string to_string(const Change& change);          // "L3H2"
ChangeKind parse_change_kind(std::string_view word);  // an error that lists the words

// An error that names the change: no such layer, head or token, a key that the query cannot see, a
// kind that the part does not have, two changes of one thing, or a query whose keys are all hidden.
void check_changes(const Changes& changes, const GptOptions& model, dim_t tokens);

// Experiments that go through a model part by part.
std::vector<Changes> each_head(const GptOptions& model, ChangeKind kind, double factor = 1.0);
std::vector<Changes> each_pair(const GptOptions& model, ChangeKind kind);  // of heads
std::vector<Changes> each_section(const GptOptions& model);  // attention and MLP of every layer
// Every key that token `query` sees, in every head: [layer][head][key].
std::vector<Changes> each_edge(const GptOptions& model, dim_t query, ChangeKind kind);

}  // namespace cephalo
#pragma GCC visibility pop
