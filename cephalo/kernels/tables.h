#pragma once

#include "cephalo/kernels/kernels.h"

namespace cephalo::kernels {

// The kernels of one instruction set; T is float or double.
template <typename T>
const AttendKernels<T>& attend_kernels(Isa isa);
template <typename T>
const BackwardKernels<T>& backward_kernels(Isa isa);
template <typename T>
const GemmKernels<T>& gemm_kernels(Isa isa);
template <typename T>
const DecodeKernels<T>& decode_kernels(Isa isa);
template <typename T>
const ModelKernels<T>& model_kernels(Isa isa);
template <typename T>
const TrainKernels<T>& train_kernels(Isa isa);
const ProbeKernels& probe_kernels(Isa isa);

// Each file of kernels/cpu fills in its own entries.
void add_attend_kernels(Isa isa, AttendKernels<float>* table);
void add_attend_kernels(Isa isa, AttendKernels<double>* table);
void add_dropout_kernels(Isa isa, AttendKernels<float>* table);
void add_dropout_kernels(Isa isa, AttendKernels<double>* table);
void add_pack_kernels(Isa isa, AttendKernels<float>* table);
void add_pack_kernels(Isa isa, AttendKernels<double>* table);
void add_backward_kernels(Isa isa, BackwardKernels<float>* table);
void add_backward_kernels(Isa isa, BackwardKernels<double>* table);
void add_gemm_kernels(Isa isa, GemmKernels<float>* table);
void add_gemm_kernels(Isa isa, GemmKernels<double>* table);
void add_decode_kernels(Isa isa, DecodeKernels<float>* table);
void add_decode_kernels(Isa isa, DecodeKernels<double>* table);
void add_model_kernels(Isa isa, ModelKernels<float>* table);
void add_model_kernels(Isa isa, ModelKernels<double>* table);
void add_train_kernels(Isa isa, TrainKernels<float>* table);
void add_train_kernels(Isa isa, TrainKernels<double>* table);
void add_probe_kernels(Isa isa, ProbeKernels* table);

}  // namespace cephalo::kernels
