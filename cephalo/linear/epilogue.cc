#include "cephalo/linear/epilogue.h"

#include "cephalo/core/cpu.h"
#include "cephalo/kernels/tables.h"

namespace cephalo {
namespace {

template <typename T>
void finish(const Epilogue& epilogue, const MutableTensorView& out, dim_t begin, dim_t end) {
  const auto& kernels = kernels::model_kernels<T>(current_isa());
  const bool erf = epilogue.form == Gelu::erf;
  const dim_t first = begin * out.dim(1);
  const dim_t count = (end - begin) * out.dim(1);
  T* rows = out.mutable_data_as<T>() + first;
  if (epilogue.kind == Epilogue::Kind::gelu) {
    kernels.gelu(rows, count, erf, epilogue.active.mutable_data_as<T>() + first);
  } else {
    kernels.gelu_backward(epilogue.hidden.data_as<T>() + first, rows, count, erf, rows);
  }
}

}  // namespace

void finish_rows(const Epilogue& epilogue, const MutableTensorView& out, dim_t begin, dim_t end) {
  switch (epilogue.kind) {
    case Epilogue::Kind::none:
    case Epilogue::Kind::add:
      return;
    case Epilogue::Kind::gelu:
    case Epilogue::Kind::gelu_back:
      return out.dtype() == DType::f64 ? finish<double>(epilogue, out, begin, end)
                                       : finish<float>(epilogue, out, begin, end);
    case Epilogue::Kind::rotate:
      return turn_rows(*epilogue.rotation, begin, end);
  }
}

}  // namespace cephalo
