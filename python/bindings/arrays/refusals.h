#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace cephalo::python {

// Which argument of which function, put into words where somebody is to read them: "attend: q".
class Who {
 public:
  Who(const char* function, const char* name) : function_(function), name_(name) {}
  operator std::string() const;  // NOLINT: it stands for the words

 private:
  const char* function_;
  const char* name_;
};

// Why an array is not taken, as an exception that names it: `who` is "attend: q".
[[noreturn]] void refuse_device(const std::string& who, int device_type, int device_id);
[[noreturn]] void refuse_dtype(nanobind::handle array, const std::string& who);
[[noreturn]] void refuse_read_only(const std::string& who);

// Of an array that neither DLPack nor a buffer could be had of: as far as it tells.
[[noreturn]] void refuse(nanobind::handle array, const std::string& who, bool to_write);

// A PyTorch tensor whose memory does not tell all: it is of a subclass with a meaning of its own,
// carries a tangent, is to get a gradient, or stands for its negative.
void refuse_tensor_state(nanobind::handle tensor, const Who& who);

// The same of NumPy's masked arrays.
void refuse_masked_array(nanobind::handle array, const Who& who);

std::string with_article(const std::string& noun);  // "an int", "a list"

// Device numbers of DLPack whose memory the CPU reads.
bool is_on_cpu(int device_type);

}  // namespace cephalo::python
