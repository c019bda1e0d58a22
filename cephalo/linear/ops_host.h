#pragma once

#include "cephalo/linear/ops.h"

// The ops on the host, by subject: ops_host.cc (products and memory), ops_host_model.cc (rows of a
// model), ops_host_train.cc (losses and optimisers).
namespace cephalo::ops::host {

void linear(const PackedLinear& weight, const TensorView& x, const MutableTensorView& out,
            const Epilogue& epilogue);
void rotate(const Rotation& rotation);
void zero(std::span<const MutableTensorView> tensors);
void copy(const TensorView& from, const MutableTensorView& to);

void norm(const Norm& rows);
void norm_backward(const NormBackward& rows);
void embed(const Embed& rows);
void embed_backward(const EmbedBackward& rows);
void join_contexts(const JoinContexts& rows);
void drop(const Drop& rows);

void cross_entropy(const CrossEntropy& rows);
void adamw(const AdamW& step);
void sgd(const Sgd& step);
void sum_of_squares(const TensorView& x, const MutableTensorView& total);
void sums_of_squares(const TensorView& x, const MutableTensorView& sums);
void row_norms(const TensorView& x, const MutableTensorView& norms);
void scale(const MutableTensorView& x, double factor);
void add(const TensorView& from, const MutableTensorView& to);

}  // namespace cephalo::ops::host
