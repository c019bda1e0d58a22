#include "cephalo/linear/ops.h"

#include <atomic>

#include "cephalo/core/common_device.h"
#include "cephalo/core/fail.h"
#include "cephalo/linear/ops_host.h"
#include "cephalo/linear/ops_table.h"

namespace cephalo::ops {
namespace {

constexpr Table kHost{
    .linear = host::linear,
    .linear_backward = project_backward,
    .rotate = host::rotate,
    .norm = host::norm,
    .norm_backward = host::norm_backward,
    .embed = host::embed,
    .embed_backward = host::embed_backward,
    .join_contexts = host::join_contexts,
    .drop = host::drop,
    .cross_entropy = host::cross_entropy,
    .adamw = host::adamw,
    .sgd = host::sgd,
    .sum_of_squares = host::sum_of_squares,
    .sums_of_squares = host::sums_of_squares,
    .row_norms = host::row_norms,
    .scale = host::scale,
    .add = host::add,
    .zero = host::zero,
    .copy = host::copy,
};
// By kind.
std::atomic<const Table*> tables[kDeviceKinds] = {&kHost, nullptr};

// The entry of a device, or an error that names op and device.
template <typename Op>
Op* implementation(const char* op, Device device, Op* Table::*entry) {
  const Table* table = tables[static_cast<int>(device.kind)].load(std::memory_order_acquire);
  Op* found = table != nullptr ? table->*entry : nullptr;
  require(found != nullptr, "{}: there is no implementation for {}", op, device);
  return found;
}

// The same where all tensors lie on one device.
template <typename Op>
Op* implementation(const char* op, Op* Table::*entry, std::initializer_list<NamedTensor> tensors) {
  return implementation(op, common_device(op, tensors), entry);
}

// What a rotation turns and reads lies where the product does.
void check_rotation(const char* op, const NamedTensor& beside, const Rotation& rotation) {
  for (int p = 0; p < rotation.count; ++p) {
    common_device(op, {beside,
                       {"heads", rotation.parts[p].heads},
                       {"shift", rotation.parts[p].shift},
                       {"angles", rotation.angles}});
  }
}

}  // namespace

void linear(const PackedLinear& weight, const TensorView& x, const MutableTensorView& out,
            const Epilogue& epilogue) {
  auto* op = implementation("linear", &Table::linear,
                            {{"weight", weight.panels()},
                             {"x", x},
                             {"out", out},
                             {"active", epilogue.active},
                             {"hidden", epilogue.hidden}});
  if (epilogue.rotation != nullptr) check_rotation("linear", {"out", out}, *epilogue.rotation);
  op(weight, x, out, epilogue);
}

void linear_backward(const Projection& forward, const ProjectionGradients& gradients) {
  implementation("linear_backward", &Table::linear_backward,
                 {{"dy", forward.dy},
                  {"x", forward.x},
                  {"weight", forward.weight},
                  {"dx", gradients.dx},
                  {"dweight", gradients.dweight},
                  {"dbias", gradients.dbias},
                  {"hidden", gradients.epilogue.hidden}})(forward, gradients);
}

void rotate(const Rotation& rotation) {
  if (rotation.count == 0) return;
  const NamedTensor heads{"heads", rotation.parts[0].heads};
  check_rotation("rotate", heads, rotation);
  implementation("rotate", &Table::rotate, {heads})(rotation);
}

void norm(const Norm& rows) {
  implementation("norm", &Table::norm,
                 {{"x", rows.x},
                  {"added", rows.added},
                  {"weight", rows.weight},
                  {"bias", rows.bias},
                  {"y", rows.y},
                  {"moments", rows.moments}})(rows);
}

void norm_backward(const NormBackward& rows) {
  implementation("norm_backward", &Table::norm_backward,
                 {{"x", rows.x},
                  {"moments", rows.moments},
                  {"weight", rows.weight},
                  {"dy", rows.dy},
                  {"dx", rows.dx},
                  {"dweight", rows.dweight},
                  {"dbias", rows.dbias}})(rows);
}

void embed(const Embed& rows) {
  implementation(
      "embed", &Table::embed,
      {{"token", rows.token}, {"position", rows.position}, {"ids", rows.ids}, {"x", rows.x}})(rows);
}

void embed_backward(const EmbedBackward& rows) {
  implementation(
      "embed_backward", &Table::embed_backward,
      {{"ids", rows.ids}, {"dx", rows.dx}, {"token", rows.token}, {"position", rows.position}})(
      rows);
}

void join_contexts(const JoinContexts& rows) {
  implementation("join_contexts", &Table::join_contexts,
                 {{"context", rows.context},
                  {"lse", rows.lse},
                  {"other", rows.other},
                  {"other_lse", rows.other_lse}})(rows);
}

void drop(const Drop& rows) {
  implementation("drop", &Table::drop, {{"x", rows.x}})(rows);
}

void cross_entropy(const CrossEntropy& rows) {
  implementation("cross_entropy", &Table::cross_entropy,
                 {{"logits", rows.logits},
                  {"targets", rows.targets},
                  {"losses", rows.losses},
                  {"dlogits", rows.dlogits}})(rows);
}

void adamw(const AdamW& step) {
  implementation("adamw", &Table::adamw,
                 {{"parameter", step.parameter},
                  {"gradient", step.gradient},
                  {"mean", step.mean},
                  {"mean_square", step.mean_square}})(step);
}

void sgd(const Sgd& step) {
  implementation(
      "sgd", &Table::sgd,
      {{"parameter", step.parameter}, {"gradient", step.gradient}, {"direction", step.direction}})(
      step);
}

void sum_of_squares(const TensorView& x, const MutableTensorView& total) {
  implementation("sum_of_squares", &Table::sum_of_squares, {{"x", x}, {"total", total}})(x, total);
}

void sums_of_squares(const TensorView& x, const MutableTensorView& sums) {
  implementation("sums_of_squares", &Table::sums_of_squares, {{"x", x}, {"sums", sums}})(x, sums);
}

void row_norms(const TensorView& x, const MutableTensorView& norms) {
  implementation("row_norms", &Table::row_norms, {{"x", x}, {"norms", norms}})(x, norms);
}

void scale(const MutableTensorView& x, double factor) {
  implementation("scale", &Table::scale, {{"x", x}})(x, factor);
}

void add(const TensorView& from, const MutableTensorView& to) {
  implementation("add", &Table::add, {{"from", from}, {"to", to}})(from, to);
}

void zero(std::span<const MutableTensorView> tensors) {
  if (tensors.empty()) return;
  for (const MutableTensorView& each : tensors) {
    common_device("zero", {{"a tensor", tensors.front()}, {"another", each}});
  }
  implementation("zero", tensors.front().device(), &Table::zero)(tensors);
}

void copy(const TensorView& from, const MutableTensorView& to) {
  const bool through_host = from.device().is_host() || to.device().is_host();
  if (!through_host) common_device("copy", {{"the source", from}, {"the copy", to}});
  const Device device = to.device().is_host() ? from.device() : to.device();
  implementation("copy", device, &Table::copy)(from, to);
}

ScopedTable::ScopedTable(DeviceKind kind, const Table& table)
    : kind_(kind), before_(tables[static_cast<int>(kind)].exchange(&table)) {}

ScopedTable::~ScopedTable() {
  tables[static_cast<int>(kind_)].store(before_);
}

}  // namespace cephalo::ops
