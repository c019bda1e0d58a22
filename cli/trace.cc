
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cephalo/core/error.h"
#include "cephalo/core/format.h"
#include "cephalo/core/random.h"
#include "cephalo/io/file.h"
#include "cephalo/io/npy.h"
#include "cephalo/learn/ladder.h"
#include "cephalo/learn/pipeline.h"
#include "cephalo/text/words.h"
#include "cephalo/view/split_picture.h"
#include "cli/journey.h"
#include "cli/numbers.h"
#include "cli/rungs.h"
#include "cli/terminal.h"
#include "cli/trace_model.h"
#include "cli/trace_run.h"
#include "cli/train_plan.h"
#include "cli/train_report.h"
#include "cli/verbs.h"

namespace cephalo::cli {
namespace {

constexpr dim_t kLargest = dim_t{1} << 24;  // a width or a length no layer has

// The flags as they were typed; numbers are parsed by us, not by the locale.
struct Flags {
  std::string text = "The cat sat on the mat";
  bool text_given = false;
  std::string rung = "5";
  std::string preset, seed = "123", d_in, d_out, num_heads, context_length, dropout, head = "0";
  std::string form, dropout_stream, input, batch = "0", svg;
  bool qkv_bias = false, train = false, explain = false, json = false, parameters = false;
  bool picture = false, force = false;
  ModelTraceFlags model;
  std::vector<Flag> untrained;  // flags of a layer that nobody trained
};

template <typename T>
T parse_choice(const std::string& flag, const std::string& text,
               std::initializer_list<std::pair<const char*, T>> choices) {
  std::string known;
  for (const auto& [word, value] : choices) {
    if (text == word) return value;
    known += known.empty() ? word : format_text(", {}", word);
  }
  throw UsageError(format_text("{}: '{}' is not one of {}", flag, printable(text), known));
}

// Sizes from the preset or the defaults, then from the flags.
MultiHeadAttentionOptions layer_options(const Flags& flags, int rung) {
  MultiHeadAttentionOptions o =
      preset(flags.preset.empty() ? preset_names().front() : flags.preset);
  if (rung == 4) o.d_out /= o.num_heads;  // the width of one head
  // Without a scale wide rows look at themselves alone: 768 numbers print the identity matrix.
  if (rung == 1 && flags.preset.empty()) o.d_in = 3;
  const auto size = [](const char* flag, const std::string& text, dim_t& to) {
    if (!text.empty()) to = parse_integer(flag, text, 1, kLargest);
  };
  size("--d-in", flags.d_in, o.d_in);
  size("--d-out", flags.d_out, o.d_out);
  size("--num-heads", flags.num_heads, o.num_heads);
  size("--context-length", flags.context_length, o.context_length);
  if (!flags.dropout.empty()) o.dropout = parse_probability("--dropout", flags.dropout);
  o.qkv_bias = flags.qkv_bias;
  if (!flags.dropout_stream.empty()) {
    o.dropout_stream = parse_choice<DropoutStream>("--dropout-stream", flags.dropout_stream,
                                                   {{"counter", DropoutStream::counter},
                                                    {"torch", DropoutStream::torch},
                                                    {"torch_mkl", DropoutStream::torch_mkl}});
  }
  if (!flags.form.empty()) {
    o.form = parse_choice<Form>("--form", flags.form,
                                {{"separate", Form::separate}, {"raw", Form::raw}});
  }
  return o;
}

void check_picture(const Flags& flags, int rung) {
  for (const auto& [given, flag] :
       {std::pair{flags.picture, "--picture"}, std::pair{!flags.svg.empty(), "--svg"}}) {
    if (given && rung < kFirstSplit) {
      throw UsageError(format_text("{}: rung {} splits nothing into heads; rungs {} to {} do", flag,
                                   rung, kFirstSplit, kPipeline));
    }
    if (given && (flags.json || flags.explain)) {
      throw UsageError(format_text("{}: cannot be combined with --json or --explain", flag));
    }
  }
  if (!flags.svg.empty() && !flags.svg.ends_with(".svg")) {
    throw UsageError(
        format_text("--svg: writes an SVG file; '{}' does not end in .svg", printable(flags.svg)));
  }
}

// Flags that a rung has no use for are refused, not ignored.
void check_flags(const Flags& flags, int rung, const MultiHeadAttentionOptions& o) {
  const auto refuse = [&](bool given, const char* flag) {
    if (given) throw UsageError(format_text("{}: rung {} has no such option", flag, rung));
  };
  refuse(rung == 1 && !flags.d_out.empty(), "--d-out");
  refuse(rung <= 3 && !flags.num_heads.empty(), "--num-heads");
  const bool drops = (rung >= 3 && rung <= 5) || rung == kPipeline;
  refuse(!drops && !flags.dropout.empty(), "--dropout");
  refuse(!drops && !flags.dropout_stream.empty(), "--dropout-stream");
  refuse(!drops && flags.train, "--train");
  refuse(rung == 1 && flags.parameters, "--parameters");
  refuse((rung == 1 || has_one_width(rung)) && flags.qkv_bias, "--qkv-bias");
  refuse(rung == kPipeline && !flags.input.empty(), "--input");
  refuse(rung != 2 && !flags.form.empty(), "--form");
  if (flags.parameters && !flags.json) throw UsageError("--parameters: only with --json");
  if (has_one_width(rung) && !flags.d_in.empty() && !flags.d_out.empty() && o.d_in != o.d_out) {
    throw UsageError(format_text("rung {} has one width: --d-in ({}) and --d-out ({}) must agree",
                                 rung, o.d_in, o.d_out));
  }
}

// Random numbers that a trace draws: the layer's parameters and, for a text, its embeddings.
// Biases are not worth counting, and whether the sizes fit each other is the layer's to say.
dim_t numbers_to_draw(int rung, const MultiHeadAttentionOptions& o, const std::string& text) {
  const dim_t width = rung == 4 ? checked_mul(o.d_out, o.num_heads) : o.d_out;
  const dim_t projections = rung == 1 ? 0 : checked_mul(3, checked_mul(o.d_in, width));
  const dim_t layer = checked_add(projections, rung < 5 ? 0 : checked_mul(width, width));
  if (text.empty()) return layer;
  const auto words = static_cast<dim_t>(split_words(text).size());
  return checked_add(layer, checked_mul(checked_add(words, o.context_length), o.d_in));
}

// What would take minutes is told, and what this machine has no memory for is refused, before the
// first number is drawn.
void say_memory(dim_t numbers) {
  constexpr std::int64_t kWorthSaying = std::int64_t{1} << 30;
  const std::int64_t needed = checked_mul(numbers, static_cast<dim_t>(sizeof(float)));
  const std::int64_t there = available_memory();
  if (there > 0 && needed > there) {
    throw Error(Error::Kind::memory,
                format_text("trace: {} random numbers need {}, and only {} is available",
                            with_commas(numbers), in_bytes(needed), in_bytes(there)));
  }
  if (needed < kWorthSaying) return;
  const std::string line = format_text("drawing {} random numbers, {}; this takes a while\n",
                                       with_commas(numbers), in_bytes(needed));
  static_cast<void>(std::fputs(line.c_str(), stderr));
}

// The words of the text as x: [1, tokens, d_in].
EmbeddedText read_text(const Flags& flags, const MultiHeadAttentionOptions& options,
                       TorchGenerator& generator, TraceRun& run) {
  run.text = printable(flags.text);
  if (split_words(flags.text).empty()) throw UsageError("--text: has no word in it");
  EmbeddedText embedded = embed_text(flags.text, options.d_in, options.context_length, generator);
  for (const std::string& token : embedded.tokens) run.tokens.push_back(printable(token));
  return embedded;
}

// Rung 1 shows the book's numbers unless something else is asked for.
bool wants_journey(const Flags& flags, int rung) {
  return rung == 1 && !flags.text_given && flags.input.empty() && flags.d_in.empty() &&
         flags.preset.empty();
}

// -> [1, 6, 3]
Tensor read_journey(TraceRun& run) {
  run.text = kJourney;
  run.tokens = split_words(kJourney);
  return journey().reshaped({1, 6, 3});
}

// x from a file, as [batch, tokens, d_in]; its tokens are called by their numbers.
Tensor read_input(const Flags& flags, MultiHeadAttentionOptions& options, TraceRun& run) {
  const Tensor x = read_npy(flags.input);
  if ((x.rank() != 2 && x.rank() != 3) || !is_floating(x.dtype()) || x.numel() == 0) {
    throw Error(Error::Kind::value,
                format_text("{}: {} {} cannot be traced; [tokens, d_in] or [batch, tokens, d_in] "
                            "of floats is needed",
                            flags.input, to_string(x.shape()), name(x.dtype())));
  }
  if (flags.d_in.empty()) options.d_in = x.dim(-1);
  if (has_one_width(run.rung) && flags.d_out.empty()) options.d_out = options.d_in;
  run.text = printable(flags.input);
  for (dim_t i = 0; i < x.dim(-2); ++i) run.tokens.push_back(std::to_string(i));
  return Tensor::copy(x, DType::f32).reshaped({x.rank() == 3 ? x.dim(0) : 1, x.dim(-2), x.dim(-1)});
}

// What is split, from the sizes alone: nothing is computed, so gpt3 is drawn as fast as gpt2.
HeadSplit split_of(const Flags& flags, const MultiHeadAttentionOptions& o, TraceRun& run) {
  HeadSplit split;
  if (flags.input.empty()) {
    for (const std::string& word : split_words(flags.text)) run.tokens.push_back(printable(word));
    if (run.tokens.empty()) throw UsageError("--text: has no word in it");
  }
  MultiHeadAttentionOptions options = o;
  if (!flags.input.empty()) split.batch = read_input(flags, options, run).dim(0);
  parameter_count(options);  // refuses what no layer can have
  split.q_tokens = split.kv_tokens = std::ssize(run.tokens);
  split.num_heads = split.num_kv_heads = options.num_heads;
  split.head_dim = split.v_dim = options.d_out / options.num_heads;
  split.tokens = run.tokens;
  return split;
}

void save_svg(const Flags& flags, const HeadSplit& split) {
  const std::string svg = split_svg(split);
  write_file(flags.svg, svg, flags.force);
  print(format_text("{}: {} bytes\n", printable(flags.svg), svg.size()));
}

void trace(const Flags& flags) {
  TraceRun run;
  run.rung = parse_rung(flags.rung);
  run.seed = parse_seed("--seed", flags.seed);
  MultiHeadAttentionOptions options = layer_options(flags, run.rung);
  check_flags(flags, run.rung, options);
  check_picture(flags, run.rung);
  if (has_one_width(run.rung)) {  // one width, whichever flag it came by
    if (!flags.d_out.empty()) options.d_in = options.d_out;
    options.d_out = options.d_in;
  }
  if (flags.picture || !flags.svg.empty()) {
    const HeadSplit split = split_of(flags, options, run);
    if (flags.picture) print(draw_split(split, terminal_style()));
    if (!flags.svg.empty()) save_svg(flags, split);
    return;
  }
  // One stream of random numbers, in the order in which the PyTorch program would draw:
  // token embedding, position embedding, layer, dropout.
  TorchGenerator generator(run.seed);
  EmbeddedText embedded;
  if (!flags.input.empty()) embedded.x = read_input(flags, options, run);
  const bool journey = wants_journey(flags, run.rung);
  const bool text = flags.input.empty() && !journey;
  say_memory(numbers_to_draw(run.rung, options, text ? flags.text : ""));
  if (journey) embedded.x = read_journey(run);
  if (text) embedded = read_text(flags, options, generator, run);
  run.drawn = run.rung > 1 || !embedded.tokens.empty();
  const TensorView x = embedded.x;

  std::unique_ptr<MultiHeadAttention> layer;
  if (run.rung == 1) {
    run.trace = trace_simple_attention(x);
    run.head_dim = options.d_in;
  } else {
    layer = make_rung(run.rung, options, generator);
    if (!flags.train) layer->eval();
    CallOptions call;
    call.generator = &generator;
    run.trace = layer->trace(x, call);
    run.num_heads = layer->options().num_heads;
    run.head_dim = layer->head_dim();
    if (flags.parameters) run.parameters = layer->parameters();
  }
  if (!embedded.tokens.empty()) run.trace.steps.front().formula = "x = token + position";
  if (run.rung == kPipeline) prepend_embedding(embedded, run.trace);
  run.head = parse_integer("--head", flags.head, 0, run.num_heads - 1);
  run.batch = x.dim(0);
  run.sequence = parse_integer("--batch", flags.batch, 0, run.batch - 1);
  if (flags.json) {
    print(trace_as_json(run));
  } else {
    print(flags.explain ? trace_as_explanation(run) : trace_as_text(run));
  }
}

// The flags that a layer is made by, none of which a trained model has a use for.
void add_layer_flags(Command verb, Flags& flags) {
  const auto add = [&](Flag flag) {
    flags.untrained.push_back(flag);
    return flag;
  };
  add(verb.add_option("--input", flags.input,
                      "An array [tokens, d_in] or [batch, tokens, d_in]\n"
                      "instead of a text, .npy")
          .type_name("FILE"));
  add(verb.add_option("--rung", flags.rung,
                      "1 simple, 2 self, 3 causal, 4 wrapper, 5 multi-head,\n"
                      "6 bidirectional, 7 fused, 8 pipeline")
          .type_name("RUNG")
          .show_default());
  add(verb.add_option("--preset", flags.preset,
                      "Sizes of a known model: gpt2, gpt2-xl, gpt3; cephalo presets lists them")
          .type_name("NAME"));
  const auto number = [&](const char* name, std::string& value, const char* help) {
    add(verb.add_option(name, value, help).type_name("N"));
  };
  number("--d-in", flags.d_in, "Width into the layer [768; rung 1: 3]");
  number("--d-out", flags.d_out, "Width out of it; in rung 4 of one head [768; 64]");
  number("--num-heads", flags.num_heads, "Heads [12]");
  number("--context-length", flags.context_length, "Longest input [1024]");
  add(verb.add_option("--dropout", flags.dropout, "Share of dropped weights, with --train [0]")
          .type_name("P"));
  add(verb.add_option("--dropout-stream", flags.dropout_stream,
                      "counter, torch or torch_mkl [counter]")
          .type_name("NAME"));
  add(verb.add_flag("--qkv-bias", flags.qkv_bias, "Biases in the q, k and v projections"));
  add(verb.add_option("--form", flags.form, "Rung 2: separate (Linear) or raw (rand matrices)")
          .type_name("FORM"));
  add(verb.add_option("--seed", flags.seed, "Seed, as in torch.manual_seed")
          .type_name("N")
          .show_default());
  add(verb.add_flag("--train", flags.train, "Training mode: dropout is applied"));
  add(verb.add_flag("--picture", flags.picture, "The width cut into heads, and what the axes do"));
  add(verb.add_option("--svg", flags.svg, "The same picture as a file").type_name("FILE"));
  add(verb.add_flag("--force", flags.force, "Replace FILE if it exists"));
  add(verb.add_flag("--parameters", flags.parameters, "With --json: the parameters too"));
}

void check_trained(const Flags& flags) {
  for (const Flag& flag : flags.untrained) {
    if (!flag.given()) continue;
    throw UsageError(
        format_text("{}: belongs to a layer that was not trained; with TEXT or --model "
                    "the parameters are the model's",
                    flag.long_names().front()));
  }
}

}  // namespace

Verb add_trace(Command program) {
  auto flags = std::make_shared<Flags>();
  Command verb =
      program.add_subcommand("trace", "Compute attention on a text, step by step, with numbers");
  flags->model.add_to(verb);
  Flag text = verb.add_option("--text", flags->text,
                              "A text for an untrained layer; its words are the tokens")
                  .show_default();
  flags->untrained.push_back(text);
  Flag batch = verb.add_option("--batch", flags->batch,
                               "The sequence to look at: of --input, or with TEXT, whose lines "
                               "then are a batch")
                   .type_name("N")
                   .show_default();
  verb.add_option("--head", flags->head, "The head to look at").type_name("N").show_default();
  verb.add_flag("--explain", flags->explain, "What happens in each step, why, and its effect");
  verb.add_flag("--json", flags->json, "Every number of every step, as JSON");
  add_layer_flags(verb, *flags);
  verb.footer(
      "With TEXT: one head of a trained model on it, by hand: every key's q . k, score,\n"
      "weight and values for one query token, and what each head adds there. Without:\n"
      "every step of an untrained layer, from x to the output.\n"
      "Examples:\n"
      "  cephalo trace \"The cat sat on the mat\" --layer 2 --head 3 --token sat\n"
      "  cephalo trace --file poem.txt --batch 1 --explain\n"
      "  cephalo trace --text \"Your journey starts with one step\" --head 3\n"
      "  cephalo trace --rung 2 --d-in 3 --d-out 2 --context-length 6 --explain\n"
      "  cephalo trace --preset gpt2-xl --json > steps.json\n"
      "  cephalo trace --picture\n"
      "Rung 1 shows the book's sentence and its three numbers per token by default.\n"
      "In JSON null stands for -inf, a hidden score, and for what there is not;\n"
      "docs/schema/trace.json describes it.");
  return [flags, text, batch] {
    flags->text_given = text.given();
    if (flags->model.given()) {
      check_trained(*flags);
      return trace_model(flags->model,
                         {flags->head, flags->batch, batch.given(), flags->explain, flags->json});
    }
    try {
      trace(*flags);
    } catch (const Error& error) {
      // All that a layer is made from here are flags: a wrong number is wrong usage.
      if (error.kind() == Error::Kind::value && flags->input.empty())
        throw UsageError(error.what());
      throw;
    }
  };
}

}  // namespace cephalo::cli
