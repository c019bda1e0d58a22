#include "bindings/arrays/ids.h"

#include <nanobind/stl/vector.h>

#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/format.h"

namespace cephalo::python {
namespace {

using Row = std::vector<std::int64_t>;

[[noreturn]] void refuse_list(const std::string& who) {
  throw nb::type_error(
      format_text("{} must be an array of integers, a list of them, or a list of lists of one "
                  "length",
                  who)
          .c_str());
}

Tensor tensor_of(const Row& row) {
  return Tensor::copy(TensorView(row.data(), {static_cast<dim_t>(row.size())}));
}

Tensor tensor_of(const std::vector<Row>& rows, const std::string& who) {
  Row flat;
  for (const Row& row : rows) {
    if (row.size() != rows.front().size()) refuse_list(who);
    flat.insert(flat.end(), row.begin(), row.end());
  }
  return tensor_of(flat).reshaped(
      {static_cast<dim_t>(rows.size()), static_cast<dim_t>(rows.front().size())});
}

Tensor from_lists(nb::handle ids, const std::string& who) {
  Row row;
  if (nb::try_cast(ids, row)) return tensor_of(row);
  std::vector<Row> rows;
  if (!nb::try_cast(ids, rows) || rows.empty()) refuse_list(who);
  return tensor_of(rows, who);
}

}  // namespace

IdsIn::IdsIn(nb::handle ids, const char* function, const char* name)
    : function_(function), name_(name) {
  if (nb::isinstance<nb::list>(ids) || nb::isinstance<nb::tuple>(ids)) {
    own_ = from_lists(ids, format_text("{}: {}", function, name));
    view_ = own_;
    kind_ = kind_without_caller(DType::i64);
  } else {
    array_ = ArrayIn(ids, function, name);
    view_ = array_.view();
    kind_ = array_.kind();
  }
}

Tensor IdsIn::copy() const {
  require_type(view_.dtype() == DType::i64 || view_.dtype() == DType::i32,
               "{}: {} are {}, int32 or int64 is needed", function_, name_,
               cephalo::name(view_.dtype()));
  return Tensor::copy(view_, DType::i64);
}

std::vector<std::int64_t> IdsIn::list() const {
  const Tensor ids = copy();
  const auto* first = ids.data_as<std::int64_t>();
  return {first, first + ids.numel()};
}

std::vector<TokenId> IdsIn::tokens() const {
  std::vector<TokenId> tokens;
  for (const std::int64_t id : list()) {
    require(std::in_range<TokenId>(id), "{}: id {} at position {} is outside any vocabulary",
            function_, id, tokens.size());
    tokens.push_back(static_cast<TokenId>(id));
  }
  return tokens;
}

}  // namespace cephalo::python
