// Rows T1 to T7 of the list of bad arrays, by their ids; and that what is written can be read.
#include "cephalo/io/npy.h"

#include <gtest/gtest.h>

#include "cephalo/core/views.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace cephalo {
namespace {

using testing::error_of;
using testing::Folder;
using testing::normal;
using testing::same_bits;
using testing::write_bytes;

std::string npy(const std::string& header, const std::string& data, char major = 1) {
  std::string text = header + "\n";
  std::string bytes = std::string("\x93NUMPY") + major + '\0';
  bytes += static_cast<char>(text.size() % 256);
  bytes += static_cast<char>(text.size() / 256);
  if (major > 1) bytes += std::string(2, '\0');
  return bytes + text + data;
}

std::string header(const std::string& descr, const std::string& shape,
                   const std::string& order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

class NpyTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "x.npy"; }
  std::string error_of_bytes(const std::string& bytes) const {
    write_bytes(path(), bytes);
    const std::string error = error_of([&] { read_npy(path()); });
    EXPECT_TRUE(error.empty() || error.starts_with(path() + ": ")) << error;
    return error.empty() ? "" : error.substr(path().size() + 2);
  }
  std::string error_of_shape(const std::string& shape, std::size_t bytes = 0) const {
    return error_of_bytes(npy(header("<f4", shape), std::string(bytes, '\0')));
  }
  Folder folder_;
};

TEST_F(NpyTest, T1_magic_and_version) {
  EXPECT_EQ(error_of_bytes(""), "is not a .npy file: it does not begin with \\x93NUMPY");
  EXPECT_EQ(error_of_bytes("\x93NUMPX 1234567"),
            "is not a .npy file: it does not begin with \\x93NUMPY");
  std::string bytes = npy(header("<f4", "(1,)"), "1234");
  for (const auto& [major, minor] : {std::pair{1, 1}, std::pair{4, 0}, std::pair{255, 255}}) {
    bytes[6] = static_cast<char>(major);
    bytes[7] = static_cast<char>(minor);
    EXPECT_EQ(error_of_bytes(bytes), "version " + std::to_string(major) + "." +
                                         std::to_string(minor) +
                                         " is unknown (1.0, 2.0 and 3.0 are known)");
  }
  for (const char major : {char{1}, char{2}, char{3}}) {
    EXPECT_EQ(error_of_bytes(npy(header("<f4", "(1,)"), "1234", major)), "");
  }
}

TEST_F(NpyTest, T2_a_header_length_that_lies) {
  const std::string bytes =
      std::string("\x93NUMPY\x02\x00\xFF\xFF\xFF\xFF", 12) + std::string(88, ' ');
  EXPECT_EQ(error_of_bytes(bytes),
            "header length 4294967295 is over the 88 bytes that follow it or the limit 1048576");
}

TEST_F(NpyTest, T3_headers_that_are_not_the_dict) {
  EXPECT_EQ(error_of_bytes(npy("[1, 2]", "")), "header: expected a dict at byte 0 of 7");
  EXPECT_EQ(error_of_bytes(npy("{'descr': '<f4', 'fortran_order': False}", "")),
            "header: key 'shape' is missing");
  EXPECT_EQ(error_of_bytes(npy("{'descr': '<f4', 'descr': '<f4'}", "")),
            "header: key 'descr' appears twice");
  EXPECT_EQ(error_of_bytes(npy("{'evil': 1}", "")), "header: unknown key 'evil'");
  EXPECT_EQ(error_of_bytes(npy("__import__('os').system('true')", "")),
            "header: expected a dict at byte 0 of 32");
  EXPECT_EQ(error_of_bytes(npy("{'descr': __import__('os')}", "")),
            "header: expected descr as a string (structures are not read) at byte 10 of 28");
  std::string no_newline = npy(header("<f4", "(1,)"), "1234");
  no_newline[no_newline.size() - 5] = ' ';
  EXPECT_EQ(error_of_bytes(no_newline), "header: does not end with a newline");
  EXPECT_EQ(error_of_bytes(npy(header("<f4", "(1,)") + " 3", "1234")),
            "header: expected the end of the header at byte 58 of 60");
}

TEST_F(NpyTest, T4_shapes_that_are_no_shapes) {
  EXPECT_EQ(error_of_shape("(-1, 2)"), "header: dimension 0 of shape is -1, must be >= 0");
  EXPECT_NE(error_of_shape("(True, 2)").find("expected a whole number in shape"),
            std::string::npos);
  EXPECT_NE(error_of_shape("(2.0,)").find("expected ',' or ')' in shape"), std::string::npos);
  EXPECT_NE(error_of_shape("[2]").find("expected shape as a tuple"), std::string::npos);
  EXPECT_EQ(error_of_shape("(9223372036854775808,)"), "header: dimension 0 of shape is too large");
  std::string many = "(";
  for (int k = 0; k < 65; ++k) many += "1, ";
  EXPECT_EQ(error_of_shape(many + ")", 4), "header: shape has more than 8 dimensions");
  EXPECT_EQ(error_of_shape("(4294967296, 4294967296)"),
            "shape: size overflows: [4294967296, 4294967296]");
}

TEST_F(NpyTest, T4_an_empty_shape_whose_other_dimensions_overflow) {
  for (const char* shape : {"(0, 4611686018427387904, 2)", "(4611686018427387904, 2, 0)",
                            "(2, 0, 4611686018427387904)"}) {
    EXPECT_TRUE(error_of_shape(shape).starts_with("shape: size overflows: [")) << shape;
    EXPECT_TRUE(error_of_bytes(npy("{'descr': '<f4', 'fortran_order': True, 'shape': " +
                                       std::string(shape) + ", }",
                                   ""))
                    .starts_with("shape: size overflows: ["));
  }
  EXPECT_EQ(error_of_shape("(0, 1099511627776, 2)"), "");
}

TEST_F(NpyTest, T5_element_types) {
  EXPECT_NE(error_of_bytes(npy(header("|O", "(1,)"), "12345678")).find("'|O' is not read: objects"),
            std::string::npos);
  EXPECT_NE(error_of_bytes(npy(header("<U8", "(1,)"), "")).find("'<U8' is not read"),
            std::string::npos);
  EXPECT_NE(error_of_bytes(npy(header(">f4", "(1,)"), "1234")).find("big-endian"),
            std::string::npos);
  EXPECT_NE(error_of_bytes(
                npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "1234"))
                .find("structures are not read"),
            std::string::npos);
  // Column-major arrays are turned into reading order.
  const Tensor t = normal({3, 2}, 1);
  const std::string data(static_cast<const char*>(t.data()), t.bytes());
  write_bytes(path(), npy(header("<f4", "(2, 3)", "True"), data));
  EXPECT_TRUE(same_bits(read_npy(path()), transpose(t, 0, 1)));
}

TEST_F(NpyTest, T6_data_that_does_not_fit_the_shape) {
  EXPECT_EQ(error_of_shape("(2, 3)", 20),
            "data: shape [2, 3] of float32 needs 24 bytes, the file has 20");
  EXPECT_EQ(error_of_shape("(2, 3)", 25),
            "data: shape [2, 3] of float32 needs 24 bytes, the file has 25");
}

TEST_F(NpyTest, T7_scalars_and_empty_arrays) {
  EXPECT_EQ(error_of_shape("()", 4), "shape: is a scalar, an array is needed");
  for (const Shape& shape : {Shape{0, 4}, Shape{1, 0, 8}}) {
    write_npy(path(), Tensor::empty(shape), true);
    EXPECT_EQ(read_npy(path()).shape(), shape);
  }
}

TEST_F(NpyTest, P1_pickles_are_refused) {
  EXPECT_NE(error_of_bytes("PK\x03\x04zip").find("which can run code"), std::string::npos);
}

TEST_F(NpyTest, what_is_written_can_be_read_again) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::i64, DType::i32, DType::i16,
                            DType::i8, DType::u8, DType::boolean}) {
    Tensor t = Tensor::copy(Tensor::of({{1, 0, 3}, {1, 5, 6}}), dtype);
    write_npy(path(), transpose(t, 0, 1), true);
    EXPECT_TRUE(same_bits(read_npy(path()), transpose(t, 0, 1))) << name(dtype);
    EXPECT_EQ(testing::read_bytes(path()).find('\n') % 64, 63U);
  }
  EXPECT_EQ(error_of([&] { write_npy(path(), normal({2}, 1, DType::bf16), true); }),
            path() + ": NumPy has no bfloat16; convert to float32 first");
  EXPECT_EQ(folder_.files(), 1U);
}

TEST_F(NpyTest, every_truncation_and_every_flipped_bit_is_read_or_refused) {
  write_npy(path(), normal({2, 2}, 1));
  const std::string whole = testing::read_bytes(path());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(error_of_bytes(whole.substr(0, length)), "") << length;
  }
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    write_bytes(path(), flipped);
    error_of([&] { read_npy(path()); });
  }
}

}  // namespace
}  // namespace cephalo
