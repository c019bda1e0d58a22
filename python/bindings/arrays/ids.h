#pragma once

#include <cstdint>
#include <vector>

#include "bindings/arrays/arrays.h"
#include "cephalo/text/token.h"

namespace cephalo::python {

// Token ids of the caller's: an array, read where it lies, or numbers in lists.
class IdsIn {
 public:
  IdsIn(nb::handle ids, const char* function, const char* name);

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }  // NOLINT: it stands for what it looks at
  Kind kind() const { return kind_; }

  // Row by row; what is neither int32 nor int64 is an error.
  Tensor copy() const;
  std::vector<std::int64_t> list() const;
  std::vector<TokenId> tokens() const;

 private:
  const char* function_;
  const char* name_;
  ArrayIn array_;
  Tensor own_;
  TensorView view_;
  Kind kind_;
};

template <typename Id>
nb::list to_list(const std::vector<Id>& ids) {
  nb::list list;
  for (const Id id : ids) list.append(id);
  return list;
}

}  // namespace cephalo::python
