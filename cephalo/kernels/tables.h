#pragma once

#include "cephalo/kernels/kernels.h"

namespace cephalo::kernels {

// The instruction set in use for operands of type In: what to ask the tables below for.
template <typename In>
Isa isa_for() {
  return current_isa(DTypeOf<In>::value);
}

// The kernels of one instruction set that multiply In and sum in Sum; null where it has none.
// <float, float> and <double, double> are there for isa_for<float>() and isa_for<double>() always,
// <BFloat16, float> for none yet: whoever finds null widens to float and takes <float, float>.
template <typename In, typename Sum>
const AttendKernels<In, Sum>* attend_kernels(Isa isa);
template <typename In, typename Sum>
const BackwardKernels<In, Sum>* backward_kernels(Isa isa);
template <typename In, typename Sum>
const SecondKernels<In, Sum>* second_kernels(Isa isa);
template <typename In, typename Sum>
const GemmKernels<In, Sum>* gemm_kernels(Isa isa);

// What has no products of matrices; T is float or double.
template <typename T>
const DecodeKernels<T>& decode_kernels(Isa isa);
template <typename T>
const ModelKernels<T>& model_kernels(Isa isa);
template <typename T>
const TrainKernels<T>& train_kernels(Isa isa);
const ProbeKernels& probe_kernels(Isa isa);

// Each file of kernels/cpu fills in its own entries.
void add_attend_kernels(Isa isa, AttendKernels<float, float>* table);
void add_attend_kernels(Isa isa, AttendKernels<double, double>* table);
void add_dropout_kernels(Isa isa, AttendKernels<float, float>* table);
void add_dropout_kernels(Isa isa, AttendKernels<double, double>* table);
void add_pack_kernels(Isa isa, AttendKernels<float, float>* table);
void add_pack_kernels(Isa isa, AttendKernels<double, double>* table);
void add_backward_kernels(Isa isa, BackwardKernels<float, float>* table);
void add_backward_kernels(Isa isa, BackwardKernels<double, double>* table);
void add_second_kernels(Isa isa, SecondKernels<float, float>* table);
void add_second_kernels(Isa isa, SecondKernels<double, double>* table);
void add_gemm_kernels(Isa isa, GemmKernels<float, float>* table);
void add_gemm_kernels(Isa isa, GemmKernels<double, double>* table);
void add_decode_kernels(Isa isa, DecodeKernels<float>* table);
void add_decode_kernels(Isa isa, DecodeKernels<double>* table);
void add_model_kernels(Isa isa, ModelKernels<float>* table);
void add_model_kernels(Isa isa, ModelKernels<double>* table);
void add_train_kernels(Isa isa, TrainKernels<float>* table);
void add_train_kernels(Isa isa, TrainKernels<double>* table);
void add_probe_kernels(Isa isa, ProbeKernels* table);

}  // namespace cephalo::kernels
