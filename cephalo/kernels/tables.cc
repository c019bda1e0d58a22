#include "cephalo/kernels/tables.h"

#include <array>

namespace cephalo::kernels {
namespace {

template <typename Table, typename Fill>
std::array<Table, kIsaCount> tables_for_all(const Fill& fill) {
  std::array<Table, kIsaCount> tables{};
  for (const Isa isa : available_isas()) fill(isa, &tables[static_cast<std::size_t>(isa)]);
  return tables;
}

}  // namespace

template <typename T>
const AttendKernels<T>& attend_kernels(Isa isa) {
  static const auto tables = tables_for_all<AttendKernels<T>>([](Isa each, AttendKernels<T>* to) {
    add_attend_kernels(each, to);
    add_dropout_kernels(each, to);
    add_pack_kernels(each, to);
  });
  return tables[static_cast<std::size_t>(isa)];
}

template <typename T>
const BackwardKernels<T>& backward_kernels(Isa isa) {
  static const auto tables = tables_for_all<BackwardKernels<T>>(
      [](Isa each, BackwardKernels<T>* to) { add_backward_kernels(each, to); });
  return tables[static_cast<std::size_t>(isa)];
}

template <typename T>
const GemmKernels<T>& gemm_kernels(Isa isa) {
  static const auto tables = tables_for_all<GemmKernels<T>>(
      [](Isa each, GemmKernels<T>* to) { add_gemm_kernels(each, to); });
  return tables[static_cast<std::size_t>(isa)];
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

template const AttendKernels<float>& attend_kernels(Isa isa);
template const AttendKernels<double>& attend_kernels(Isa isa);
template const BackwardKernels<float>& backward_kernels(Isa isa);
template const BackwardKernels<double>& backward_kernels(Isa isa);
template const GemmKernels<float>& gemm_kernels(Isa isa);
template const GemmKernels<double>& gemm_kernels(Isa isa);
template const DecodeKernels<float>& decode_kernels(Isa isa);
template const DecodeKernels<double>& decode_kernels(Isa isa);
template const ModelKernels<float>& model_kernels(Isa isa);
template const ModelKernels<double>& model_kernels(Isa isa);
template const TrainKernels<float>& train_kernels(Isa isa);
template const TrainKernels<double>& train_kernels(Isa isa);

}  // namespace cephalo::kernels
