#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cephalo/view/look.h"
#include "cephalo/view/terminal.h"

#pragma GCC visibility push(default)
namespace cephalo {

// Attention of one head by hand, on the parameters and the text of a model: what one query, a
// token of the text, makes of every key that it may look at.

// Which head, on which token of which text.
struct HeadTraceOptions {
  dim_t layer = 0;
  dim_t head = 0;
  std::optional<dim_t> token = {};  // the query; none: the last token
  bool begin = true;                // first_token comes before each text
  dim_t sequence = 0;               // of several texts, the one to look at
  int threads = 0;
};

// One key, step by step.
struct TracedKey {
  double product;  // q · k, both after rotary where the model has it
  double score;    // product · scale
  double weight;   // softmax of the scores
  double adds;     // weight · ‖v W_out^h‖₂: how much the key puts into the residual stream
};

// One text of a batch.
struct TracedSequence {
  std::string text;
  dim_t tokens;
};

// Numbers are float64, worked out from the q, k and v that the model computed.
struct HeadTrace {
  std::string text;
  std::string model;                            // its name
  bool begun = false;                           // the first token was prepended
  std::optional<dim_t> trained_context_length;  // where the text is longer than that
  std::vector<LookToken> tokens;
  dim_t num_layers = 0;
  dim_t num_heads = 0;
  dim_t layer = 0;
  dim_t head = 0;
  dim_t token = 0;               // the query
  std::optional<Rotary> rotary;  // q and k are turned by it
  double scale = 0.0;            // 1 / sqrt(head_dim)
  Tensor q;                      // [head_dim]
  Tensor k;                      // [keys, head_dim]
  Tensor v;                      // [keys, v_dim]
  Tensor context;                // [v_dim], the sum of weight · v
  std::vector<TracedKey> keys;   // tokens 0 to `token`: later ones are hidden

  // What the output projection adds at the query, head by head: ‖z_h W_out^h‖₂, where z_h is the
  // context of head h and W_out^h are the columns of the projection that take it. [num_heads]
  std::vector<double> head_norms;
  double added_norm = 0.0;  // ‖Σ_h z_h W_out^h‖₂: less than the sum, because heads partly cancel
  double bias_norm = 0.0;  // of the projection's bias, the same for every token

  // What went through the model at once. Shorter texts were padded at the end, where no token of
  // theirs looks, so each gives what it gives alone.
  std::vector<TracedSequence> batch;
  dim_t sequence = 0;           // of the batch, the one shown
  std::int64_t padding_id = 0;  // what fills the shorter ones

  dim_t padded_to() const;                      // tokens of the longest
  std::vector<double> shares() const;           // head_norms over their sum; none when that is 0
  std::vector<dim_t> strongest() const;         // keys, the largest weight first
  std::vector<dim_t> strongest_values() const;  // numbers of the context, the largest first
};

// The texts run through the model once, as one batch. An error: no text, no such layer, head, token
// or sequence, or a text that the model cannot read at once.
HeadTrace trace_head(const LookModel& model, const std::vector<std::string>& texts,
                     const HeadTraceOptions& options = {});

// One line of a calculation: "scale", "46.805 / sqrt(32) = 8.274".
struct WorkedStep {
  const char* name;
  std::string text;
};
// The strongest key from q · k to its weight, and one number of the context.
std::vector<WorkedStep> worked_key(const HeadTrace& trace);

// How a trace is written.
struct HeadTraceText {
  dim_t top = 10;        // how many keys: the strongest, and the query itself
  bool explain = false;  // what each step is for, too
  TerminalStyle style = {};
};

// The table of the keys, one cell worked out, and the share of each head.
std::string to_text(const HeadTrace& trace, const HeadTraceText& options = {});

// All of it as one line of JSON: docs/schema/trace.json. model: the one that was traced.
std::string to_json(const HeadTrace& trace, const LookModel& model);

}  // namespace cephalo
#pragma GCC visibility pop
