// What experiments on the built-in model cost.
//
//   sweep_time TOKENS THREADS [pass | last | losses | pairs | edges | patch]...
//
// A row for each: the best of several runs, and the most memory that the process ever had. Texts
// longer than the model was trained on are beyond what it knows; the time is the same.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "cephalo/core/parallel.h"
#include "cephalo/core/random.h"
#include "cephalo/effects/patching.h"
#include "cephalo/model/builtin.h"

namespace cephalo {
namespace {

Gpt builtin_with_context(dim_t tokens) {
  const TextModel builtin = builtin_model();
  GptOptions options = builtin.gpt.options();
  options.context_length = std::max(options.context_length, tokens);
  return Gpt(options, [&](const std::string& name, const MutableTensorView& to) {
    to.copy_from(builtin.gpt.parameter(name));
  });
}

std::vector<std::int64_t> random_ids(dim_t count, dim_t vocab_size, std::uint64_t seed) {
  TorchGenerator generator(seed);
  std::vector<std::int64_t> ids;
  for (dim_t i = 0; i < count; ++i) ids.push_back(generator.randint(0, vocab_size));
  return ids;
}

struct Seconds {
  double wall = 0.0;
  double cpu = 0.0;  // of all threads; on a machine that others use it says more
};

Seconds seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t cpu = std::clock();
  work();
  const auto end = std::chrono::steady_clock::now();
  return {std::chrono::duration<double>(end - begin).count(),
          static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC};
}

// Within about three seconds, at least once.
void print_best(const std::string& name, const std::function<void()>& work) {
  Seconds best = seconds_of(work);
  for (double spent = best.wall; spent < 3.0;) {
    const Seconds once = seconds_of(work);
    best = {std::min(best.wall, once.wall), std::min(best.cpu, once.cpu)};
    spent += once.wall;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("%-36s %9.2f ms   %9.2f ms of CPU   %5ld MiB at most\n", name.c_str(),
              1e3 * best.wall, 1e3 * best.cpu, usage.ru_maxrss / 1024);
  std::fflush(stdout);
}

class Rows {
 public:
  explicit Rows(dim_t tokens)
      : model_(builtin_with_context(tokens)),
        text_(model_, random_ids(tokens, model_.options().vocab_size, 1)),
        other_(text_.steps(), random_ids(tokens, model_.options().vocab_size, 2)) {}

  void print(const std::string& what) const {
    const GptOptions& o = model_.options();
    const Measures last{.logits = {11, 12}};
    if (what == "pass") {
      print_best("a pass", [&] { KeptPass(text_.steps(), text_.ids()); });
    } else if (what == "last") {
      print_sweep("each head, last token", each_head(o, ChangeKind::zero), last);
    } else if (what == "losses") {
      print_sweep("each head, all losses", each_head(o, ChangeKind::zero), {.losses = true});
    } else if (what == "pairs") {
      print_sweep("each pair, last token", each_pair(o, ChangeKind::zero), last);
    } else if (what == "edges") {
      print_sweep("each edge of the last token", each_edge(o, text_.tokens() - 1, ChangeKind::hide),
                  last);
    } else if (what == "patch") {
      print_best("patching, heads and positions", [&] { patch_each(other_, text_, 11, 12); });
    }
  }

 private:
  void print_sweep(const std::string& name, const std::vector<Changes>& experiments,
                   const Measures& measures) const {
    print_best(name + " (" + std::to_string(experiments.size()) + ")",
               [&] { measure_changes(text_, experiments, measures); });
  }

  Gpt model_;
  KeptPass text_, other_;
};

int run(int argc, char** argv) {
  if (argc < 4) {
    std::fputs(
        "usage: sweep_time TOKENS THREADS [pass | last | losses | pairs | edges | patch]...\n",
        stderr);
    return 2;
  }
  set_threads(static_cast<int>(std::strtol(argv[2], nullptr, 10)));
  const Rows rows(std::strtoll(argv[1], nullptr, 10));
  for (int n = 3; n < argc; ++n) rows.print(argv[n]);
  return 0;
}

}  // namespace
}  // namespace cephalo

int main(int argc, char** argv) {
  return cephalo::run(argc, argv);
}
