// Our kernels against dnnl_sgemm and against a plain read, in one process and by turns.

#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "bench/yardstick_rows.h"
#include "cephalo/core/cpu.h"
#include "cephalo/core/format.h"
#include "cephalo/core/parallel.h"

// Of libgomp, whose threads dnnl uses. clang-tidy knows no <omp.h>.
extern "C" void omp_set_num_threads(int count);

namespace {

using namespace cephalo;
using namespace cephalo::bench;

constexpr const char* kUsage =
    "yardstick [--threads N] [--rounds 15] [--runs 1] [--rows TEXT] [--isa NAME] [--list]\n"
    "  --threads N   only that count; otherwise 1 and all\n"
    "  --rounds N    turns of each side in one run\n"
    "  --runs N      the best of so many runs counts\n"
    "  --rows TEXT   only rows with this in their name\n"
    "  --isa NAME    our kernels of that instruction set; DNNL_MAX_CPU_ISA in the environment\n"
    "                chooses dnnl's: DNNL_MAX_CPU_ISA=AVX2 yardstick --isa avx2\n"
    "  --list        the names of the rows\n";

struct Options {
  std::vector<int> threads;
  int rounds = 15;
  int runs = 1;
  std::string rows;
  bool list = false;
};

int positive(const std::string& flag, const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) {
    throw std::invalid_argument(format_text("{}: '{}' is not a whole number > 0", flag, text));
  }
  return value;
}

void use_isa(const std::string& wanted) {
  std::string known;
  for (const Isa isa : available_isas()) {
    if (wanted == name(isa)) return force_isa(isa);
    known += format_text(" {}", name(isa));
  }
  throw std::invalid_argument(format_text("--isa: there is no {}; there are{}", wanted, known));
}

Options parse(int argc, char** argv) {
  Options options;
  for (int k = 1; k < argc; ++k) {
    const std::string flag = argv[k];
    if (flag == "--list") {
      options.list = true;
      continue;
    }
    if (k + 1 == argc) throw std::invalid_argument(kUsage);
    const std::string value = argv[++k];
    if (flag == "--threads") {
      options.threads = {positive(flag, value)};
    } else if (flag == "--rounds") {
      options.rounds = positive(flag, value);
    } else if (flag == "--runs") {
      options.runs = positive(flag, value);
    } else if (flag == "--rows") {
      options.rows = value;
    } else if (flag == "--isa") {
      use_isa(value);
    } else {
      throw std::invalid_argument(kUsage);
    }
  }
  if (options.threads.empty()) {
    options.threads = {1};
    if (threads() > 1) options.threads.push_back(threads());
  }
  return options;
}

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (const auto& group :
       {attention_rows(), backward_rows(), mask_rows(), gemm_rows(), decode_rows()}) {
    rows.insert(rows.end(), group.begin(), group.end());
  }
  return rows;
}

void measure(const Row& row, const Options& options) {
  set_threads(options.threads.back());
  omp_set_num_threads(options.threads.back());
  const Comparison comparison = row.make();
  for (const int count : options.threads) {
    set_threads(count);
    omp_set_num_threads(count);
    const Result result = compare_best(comparison, options.rounds, options.runs);
    std::fputs(format_text("{:<46} {} thread{}: {}\n", row.name, count, count == 1 ? " " : "s",
                           to_string(comparison, result))
                   .c_str(),
               stdout);
    std::fflush(stdout);
  }
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (!options.list)
    std::fputs(format_text("instruction set {}\n", name(current_isa())).c_str(), stdout);
  for (const Row& row : all_rows()) {
    if (row.name.find(options.rows) == std::string::npos) continue;
    if (options.list) {
      std::fputs(format_text("{}\n", row.name).c_str(), stdout);
    } else {
      measure(row, options);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    static_cast<void>(std::fprintf(stderr, "%s\n", error.what()));
    return 2;
  }
}
