// A program of somebody else's, compiled with hidden symbols, and the shared library: what is
// thrown on one side is caught on the other.
#include <cephalo/cephalo.h>
#include <gtest/gtest.h>

#include <string>

namespace {

using cephalo::Error;
using cephalo::Tensor;

TEST(SharedLibraryTest, an_error_thrown_inside_is_caught_outside) {
  cephalo::TorchGenerator generator(1);
  const Tensor q = generator.randn({1, 2, 3, 4});
  const Tensor k = generator.randn({1, 2, 3, 5});
  try {
    cephalo::attend(q, k, k);
    FAIL() << "head_dim 4 was multiplied by head_dim 5";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::value);
    EXPECT_NE(std::string(error.what()).find("attend"), std::string::npos) << error.what();
  }
}

TEST(SharedLibraryTest, an_error_keeps_its_class) {
  EXPECT_THROW(cephalo::parse_mask("causl()"), cephalo::MaskTextError);
  try {
    cephalo::read_npy("no/such/file.npy");
    FAIL() << "a file was read that is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::io);
    EXPECT_EQ(dynamic_cast<const cephalo::MaskTextError*>(&error), nullptr);
  }
}

class OutOfCoffee {};

TEST(SharedLibraryTest, what_a_callback_throws_passes_through) {
  const auto source = [](const std::string&) -> Tensor { throw OutOfCoffee(); };
  EXPECT_THROW(cephalo::parse_mask("keep(\"padding\")", source), OutOfCoffee);
}

}  // namespace
