#include "bindings/core/random.h"

#include <nanobind/stl/vector.h>

#include <vector>

#include "bindings/arrays/arrays.h"
#include "bindings/arrays/gil.h"
#include "bindings/arrays/spellings.h"
#include "bindings/bindings.h"
#include "cephalo/core/random.h"

namespace cephalo::python {
namespace {

Shape shape_of(const std::vector<dim_t>& sizes) {
  Shape shape;
  for (const dim_t size : sizes) shape.push_back(size);
  return shape;
}

using Draw = Tensor (TorchGenerator::*)(const Shape&, DType);

template <Draw draw>
AnyArray drawn(Generator& self, const std::vector<dim_t>& shape, const nb::object& dtype) {
  const Shape sizes = shape_of(shape);
  const DType type = dtype_of(dtype, "TorchGenerator");
  Tensor numbers;
  {
    const WithoutGil released;
    const std::scoped_lock turn(self.turn);
    numbers = (self.stream.*draw)(sizes, type);
  }
  return to_python(std::move(numbers), kind_without_caller(type));
}

}  // namespace

void bind_random(nb::module_& m) {
  nb::class_<Generator>(m, "TorchGenerator",
                        "PyTorch's CPU generator, bit for bit: after torch.manual_seed(seed) the "
                        "same calls give the same numbers.")
      .def(nb::init<std::uint64_t>(), "seed"_a)
      .def_prop_ro("seed", [](const Generator& g) { return g.stream.seed(); })
      .def("rand", &drawn<&TorchGenerator::rand>, "shape"_a, "dtype"_a = "float32",
           "torch.rand(shape): uniform in [0, 1).")
      .def("randn", &drawn<&TorchGenerator::randn>, "shape"_a, "dtype"_a = "float32",
           "torch.randn(shape): normal, mean 0, deviation 1.");
}

}  // namespace cephalo::python
