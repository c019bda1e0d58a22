#include "cephalo/kernels/tables.h"

#include <array>
#include <optional>

namespace cephalo::kernels {
namespace {

template <typename Table, typename Fill>
std::array<Table, kIsaCount> tables_for_all(const Fill& fill) {
  std::array<Table, kIsaCount> tables{};
  for (const Isa isa : available_isas()) fill(isa, &tables[static_cast<std::size_t>(isa)]);
  return tables;
}

// No file of kernels/cpu multiplies 16-bit numbers yet.
template <typename In>
constexpr bool kHasKernels = sizeof(In) > 2;

// The table of products of In: filled once, where an instruction set multiplies them.
template <typename In, typename Table, typename Fill>
const Table* find_table(Isa isa, const Fill& fill) {
  if constexpr (kHasKernels<In>) {
    static const auto tables =
        tables_for_all<std::optional<Table>>([&](Isa each, std::optional<Table>* to) {
          if (multiplies(each, DTypeOf<In>::value)) fill(each, &to->emplace());
        });
    const std::optional<Table>& found = tables[static_cast<std::size_t>(isa)];
    return found ? &*found : nullptr;
  } else {
    return nullptr;
  }
}

}  // namespace

template <typename In, typename Sum>
const AttendKernels<In, Sum>* attend_kernels(Isa isa) {
  using Table = AttendKernels<In, Sum>;
  return find_table<In, Table>(isa, [](Isa each, auto* to) {
    add_attend_kernels(each, to);
    add_dropout_kernels(each, to);
    add_pack_kernels(each, to);
  });
}

template <typename In, typename Sum>
const BackwardKernels<In, Sum>* backward_kernels(Isa isa) {
  using Table = BackwardKernels<In, Sum>;
  return find_table<In, Table>(isa, [](Isa each, auto* to) { add_backward_kernels(each, to); });
}

template <typename In, typename Sum>
const SecondKernels<In, Sum>* second_kernels(Isa isa) {
  using Table = SecondKernels<In, Sum>;
  return find_table<In, Table>(isa, [](Isa each, auto* to) { add_second_kernels(each, to); });
}

template <typename In, typename Sum>
const GemmKernels<In, Sum>* gemm_kernels(Isa isa) {
  using Table = GemmKernels<In, Sum>;
  return find_table<In, Table>(isa, [](Isa each, auto* to) { add_gemm_kernels(each, to); });
}

template <typename T>
const DecodeKernels<T>& decode_kernels(Isa isa) {
  static const auto tables = tables_for_all<DecodeKernels<T>>(
      [](Isa each, DecodeKernels<T>* to) { add_decode_kernels(each, to); });
  return tables[static_cast<std::size_t>(isa)];
}

template <typename T>
const ModelKernels<T>& model_kernels(Isa isa) {
  static const auto tables = tables_for_all<ModelKernels<T>>(
      [](Isa each, ModelKernels<T>* to) { add_model_kernels(each, to); });
  return tables[static_cast<std::size_t>(isa)];
}

template <typename T>
const TrainKernels<T>& train_kernels(Isa isa) {
  static const auto tables = tables_for_all<TrainKernels<T>>(
      [](Isa each, TrainKernels<T>* to) { add_train_kernels(each, to); });
  return tables[static_cast<std::size_t>(isa)];
}

const ProbeKernels& probe_kernels(Isa isa) {
  static const auto tables = tables_for_all<ProbeKernels>(add_probe_kernels);
  return tables[static_cast<std::size_t>(isa)];
}

template const AttendKernels<float, float>* attend_kernels(Isa isa);
template const AttendKernels<double, double>* attend_kernels(Isa isa);
template const AttendKernels<BFloat16, float>* attend_kernels(Isa isa);
template const BackwardKernels<float, float>* backward_kernels(Isa isa);
template const BackwardKernels<double, double>* backward_kernels(Isa isa);
template const BackwardKernels<BFloat16, float>* backward_kernels(Isa isa);
template const SecondKernels<float, float>* second_kernels(Isa isa);
template const SecondKernels<double, double>* second_kernels(Isa isa);
template const SecondKernels<BFloat16, float>* second_kernels(Isa isa);
template const GemmKernels<float, float>* gemm_kernels(Isa isa);
template const GemmKernels<double, double>* gemm_kernels(Isa isa);
template const GemmKernels<BFloat16, float>* gemm_kernels(Isa isa);
template const DecodeKernels<float>& decode_kernels(Isa isa);
template const DecodeKernels<double>& decode_kernels(Isa isa);
template const ModelKernels<float>& model_kernels(Isa isa);
template const ModelKernels<double>& model_kernels(Isa isa);
template const TrainKernels<float>& train_kernels(Isa isa);
template const TrainKernels<double>& train_kernels(Isa isa);

}  // namespace cephalo::kernels
