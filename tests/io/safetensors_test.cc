// Rows W1 to W15 of the list of bad parameter files, those that a reader alone can show, by their
// ids; and that what is written can be read.
#include "cephalo/io/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "cephalo/core/error.h"
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

std::string with_length(const std::string& json, const std::string& data) {
  const std::uint64_t length = json.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + json + data;
}

class SafetensorsTest : public ::testing::Test {
 protected:
  std::string path() const { return folder_ / "layer.safetensors"; }

  // What reading these bytes says, without the path in front.
  std::string error_of_bytes(const std::string& bytes) const {
    write_bytes(path(), bytes);
    const std::string error = error_of([&] { SafetensorsFile file(path()); });
    EXPECT_TRUE(error.empty() || error.starts_with(path() + ": ")) << error;
    return error.empty() ? "" : error.substr(path().size() + 2);
  }
  std::string error_of_header(const std::string& json, std::size_t data_bytes = 0) const {
    return error_of_bytes(with_length(json, std::string(data_bytes, '\0')));
  }

  Folder folder_;
};

TEST_F(SafetensorsTest, W1_files_too_short_for_a_length) {
  EXPECT_EQ(error_of_bytes(""), "needs 8 bytes, file has 0");
  EXPECT_EQ(error_of_bytes("1234567"), "needs 8 bytes, file has 7");
}

TEST_F(SafetensorsTest, W2_header_lengths_that_lie) {
  EXPECT_EQ(error_of_bytes(std::string(8, '\xFF') + "{}"),
            "header length 18446744073709551615 is over the limit 100000000");
  std::string bytes = with_length("{}", "");
  const std::uint64_t over_limit = 100000001;
  std::memcpy(bytes.data(), &over_limit, 8);
  EXPECT_EQ(error_of_bytes(bytes), "header length 100000001 is over the limit 100000000");
  const std::uint64_t one_too_long = 3;
  std::memcpy(bytes.data(), &one_too_long, 8);
  EXPECT_EQ(error_of_bytes(bytes), "header length 3 is over the 2 bytes that follow it");
}

TEST_F(SafetensorsTest, W3_headers_that_are_no_json_object) {
  EXPECT_EQ(error_of_header("{\"a\xFF\": 1}"), "header: not valid UTF-8 JSON at byte 12");
  EXPECT_EQ(error_of_header("not json"), "header: not valid UTF-8 JSON at byte 10");
  EXPECT_EQ(error_of_header(""), "header: not valid UTF-8 JSON at byte 9");
  EXPECT_EQ(error_of_header("{} {}"), "header: not valid UTF-8 JSON at byte 12");
  EXPECT_EQ(error_of_header("[]"), "header: is an array, not an object");
  EXPECT_EQ(error_of_header("3"), "header: is not an object");
  EXPECT_EQ(error_of_header(std::string(100000, '[')), "header: is an array, not an object");
  std::string deep;
  for (int k = 0; k < 100000; ++k) deep += "{\"a\":";
  EXPECT_EQ(error_of_header(deep), "a: unknown field a");
}

TEST_F(SafetensorsTest, W3_a_nul_after_the_object_does_not_hide_what_follows) {
  EXPECT_EQ(error_of_header(std::string("{}\0anything", 11)),
            "header: not valid UTF-8 JSON at byte 11");
}

TEST_F(SafetensorsTest, W3_names_are_shown_in_part_and_without_what_turns_a_line_round) {
  const std::string megabytes(5'000'000, 'a');
  EXPECT_EQ(error_of_header("{\"" + megabytes + "\":{}}"),
            std::string(100, 'a') + "... (5000000 bytes): a name may have 1024 bytes at most");
  EXPECT_EQ(error_of_header("{\"__metadata__\":{\"" + megabytes + "\":\"\"}}"),
            std::string(100, 'a') + "... (5000000 bytes): a name may have 1024 bytes at most");
  EXPECT_EQ(error_of_header("{\"" + std::string(9'000'000, 'a') + "\":{}}"),
            "header: a name or value of more than 8388608 bytes at byte 8388619");
  EXPECT_EQ(error_of_header("{\"" + std::string(500, 'b') + "\":{\"dtype\":1}}"),
            std::string(100, 'b') + "... (500 bytes): dtype: the number 1 does not belong here");
  EXPECT_EQ(error_of_header("{\"a\u202Eb\":{\"dtype\":\"\u2066\"}}"),
            "a?b: dtype: unknown type \"?\" (F32 F64 BF16 F16 I64 I32 I16 I8 U8 BOOL are known)");
}

TEST_F(SafetensorsTest, W4_names_that_appear_twice) {
  const std::string entry = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_EQ(error_of_header("{\"a\":" + entry + ",\"a\":" + entry + "}", 4), "a: appears twice");
  EXPECT_EQ(error_of_header("{\"a\":" + entry + ",\"\\u0061\":" + entry + "}", 4),
            "a: appears twice");
  EXPECT_EQ(error_of_header(R"({"a":{"dtype":"F32","dtype":"F32"}})"), "a: dtype appears twice");
}

TEST_F(SafetensorsTest, W5_overlaps_and_holes) {
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(error_of_header(two("[0,4]", "[2,6]"), 6), "b: begins at 2, a ends at 4: they overlap");
  EXPECT_EQ(error_of_header(two("[0,4]", "[6,10]"), 10),
            "b: begins at 6, a ends at 4: a hole between them");
  EXPECT_EQ(error_of_header(two("[1,5]", "[5,9]"), 9),
            "a: begins at 1, the header ends at 0: a hole between them");
  EXPECT_EQ(error_of_header(two("[4,8]", "[0,4]"), 8), "");
}

TEST_F(SafetensorsTest, W6_offsets_that_are_no_offsets) {
  const auto entry = [](const std::string& offsets) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + offsets + "}}";
  };
  EXPECT_EQ(error_of_header(entry("[4,0]"), 4), "a: data_offsets: end (0) is before begin (4)");
  EXPECT_EQ(error_of_header(entry("[-4,0]"), 4), "a: data_offsets: -4 is negative");
  EXPECT_EQ(error_of_header(entry("[0,1.5]"), 4),
            "a: data_offsets: 1.5 is not a whole number below 2^63");
  EXPECT_EQ(error_of_header(entry("[0,\"12\"]"), 4),
            "a: data_offsets: \"12\" is not a whole number");
  EXPECT_EQ(error_of_header(entry("[0,18446744073709551616]"), 4),
            "a: data_offsets: 18446744073709551616 is not a whole number below 2^63");
  EXPECT_EQ(error_of_header(entry("[0,9223372036854775808]"), 4),
            "a: data_offsets: 9223372036854775808 is too large");
  EXPECT_EQ(error_of_header(entry("[0]"), 4), "a: data_offsets: got 1 numbers, expected 2");
  EXPECT_EQ(error_of_header(entry("[0,4,8]"), 4), "a: data_offsets: more than two numbers");
  EXPECT_EQ(error_of_header(entry("[[0],4]"), 4), "a: data_offsets: an array does not belong here");
  EXPECT_EQ(error_of_header(entry("{}"), 4), "a: data_offsets: an object does not belong here");
  EXPECT_EQ(error_of_header(entry("null"), 4), "a: data_offsets: null does not belong here");
}

TEST_F(SafetensorsTest, W7_shapes_whose_size_wraps) {
  const auto entry = [](const std::string& shape) {
    return R"({"a":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,0]}})";
  };
  EXPECT_EQ(error_of_header(entry("[2,4611686018427387904]")),
            "a: shape: size overflows: [2, 4611686018427387904]");
  EXPECT_EQ(error_of_header(entry("[2,9223372036854775808]")),
            "a: shape: 9223372036854775808 is too large");
  EXPECT_EQ(error_of_header(entry("[4294967296,4294967296]")),
            "a: shape: size overflows: [4294967296, 4294967296]");
  EXPECT_EQ(error_of_header(entry("[4611686018427387904]")),
            "a: shape: size overflows: [4611686018427387904]");
  EXPECT_EQ(error_of_header(entry("[0,4611686018427387904,2]")),
            "a: shape: size overflows: [0, 4611686018427387904, 2]");
}

TEST_F(SafetensorsTest, W8_shapes_that_do_not_fit_their_bytes) {
  EXPECT_EQ(error_of_header(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,20]}})", 20),
            "a: data_offsets hold 20 bytes, shape [2, 3] of float32 needs 24");
}

TEST_F(SafetensorsTest, W9_bytes_left_over_or_missing) {
  const std::string entry = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  EXPECT_EQ(error_of_header(entry, 5), "tensors end at byte 4 of the data, the file has 5");
  EXPECT_EQ(error_of_header(entry, 3), "tensors end at byte 4 of the data, the file has 3");
}

TEST_F(SafetensorsTest, W10_types_and_metadata_that_are_unknown) {
  const auto entry = [](const std::string& dtype) {
    return R"({"a":{)" + dtype + R"("shape":[],"data_offsets":[0,4]}})";
  };
  EXPECT_EQ(error_of_header(entry(R"("dtype":"F4",)"), 4),
            "a: dtype: unknown type \"F4\" (F32 F64 BF16 F16 I64 I32 I16 I8 U8 BOOL are known)");
  EXPECT_NE(error_of_header(entry(R"("dtype":"f32",)"), 4).find("unknown type \"f32\""),
            std::string::npos);
  EXPECT_EQ(error_of_header(entry(""), 4), "a: dtype is missing");
  EXPECT_EQ(error_of_header(R"({"__metadata__":{"k":3}})"),
            "__metadata__: k: the number 3 does not belong here");
  EXPECT_EQ(error_of_header(R"({"__metadata__":{"k":{}}})"),
            "__metadata__: k: an object does not belong here");
  EXPECT_EQ(error_of_header(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1],"x":1}})", 1),
            "a: unknown field x");
}

TEST_F(SafetensorsTest, W12_valid_oddities) {
  EXPECT_EQ(error_of_header("{}"), "");
  EXPECT_EQ(error_of_header("{}   "), "");
  EXPECT_EQ(error_of_header(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", 4), "");
  EXPECT_EQ(error_of_header(R"({"a":{"dtype":"F32","shape":[3,0],"data_offsets":[0,0]}})"), "");
  // A header of odd length: the numbers behind it lie at odd addresses.
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16, DType::f32}) {
    const Tensor values = normal({3}, 1, dtype);
    const std::string word = dtype == DType::f64   ? "F64"
                             : dtype == DType::f16 ? "F16"
                             : dtype == DType::f32 ? "F32"
                                                   : "BF16";
    std::string json = R"({"a":{"dtype":")" + word + R"(","shape":[3],"data_offsets":[0,)" +
                       std::to_string(values.bytes()) + "]}}";
    if (json.size() % 2 == 0) json += ' ';
    write_bytes(path(), with_length(json, std::string(static_cast<const char*>(values.data()),
                                                      values.bytes())));
    const SafetensorsFile file(path());
    EXPECT_TRUE(same_bits(file.read(file.entries()[0]), values));
  }
}

TEST_F(SafetensorsTest, W14_paths_that_are_no_files) {
  const auto opening = [](const std::string& at) {
    return error_of([&] { SafetensorsFile file(at); });
  };
  EXPECT_EQ(opening(folder_ / "none"), (folder_ / "none") + ": No such file or directory");
  EXPECT_EQ(opening("/tmp"), "/tmp: is a directory, not a file");
  EXPECT_EQ(opening("/dev/zero"), "/dev/zero: is a device, not a file");
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(opening(pipe), pipe + ": is a pipe, not a file");
  const std::string dangling = folder_ / "dangling";
  ASSERT_EQ(symlink("nowhere", dangling.c_str()), 0);
  EXPECT_EQ(opening(dangling), dangling + ": No such file or directory");
}

TEST_F(SafetensorsTest, W15_a_file_cut_short_after_it_was_opened) {
  const Tensor values = normal({1000}, 1);
  write_safetensors(path(), {{"a", values}}, {});
  const SafetensorsFile file(path());
  ASSERT_EQ(truncate(path().c_str(), 500), 0);
  const std::string error = error_of([&] { file.read(file.entries()[0]); });
  EXPECT_NE(error.find(": was truncated to 500 bytes while being read"), std::string::npos)
      << error;
}

TEST_F(SafetensorsTest, P1_pickles_under_any_name_are_refused) {
  for (const std::string& first :
       {std::string("PK\x03\x04rest of a zip"), std::string("\x80\x02}q\x00.", 6)}) {
    EXPECT_NE(
        error_of_bytes(first).find("which can run code when it is read; convert it once with"),
        std::string::npos);
  }
}

TEST_F(SafetensorsTest, P1_a_header_whose_length_looks_like_a_pickle_is_read) {
  for (const std::size_t length : {0x0280U, 0x0380U, 0x0480U, 0x0580U}) {
    EXPECT_EQ(error_of_header("{}" + std::string(length - 2, ' ')), "");
  }
}

TEST_F(SafetensorsTest, what_is_written_can_be_read_again) {
  const Tensor a = normal({2, 3}, 1);
  const Tensor b = normal({4}, 2, DType::bf16);
  write_safetensors(path(), {{"a", transpose(a, 0, 1)}, {"b \"quoted\"", b}}, {{"k", "v\n"}});
  const SafetensorsFile file(path());
  ASSERT_EQ(file.entries().size(), 2U);
  EXPECT_TRUE(same_bits(file.read(*file.find("a")), transpose(a, 0, 1)));
  EXPECT_TRUE(same_bits(file.read(*file.find("b \"quoted\"")), b));
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(file.metadata().at("k"), "v\n");
  Tensor wide = Tensor::empty({3, 2}, DType::f64);
  file.read_into(*file.find("a"), wide);
  EXPECT_EQ(wide.at({2, 1}), a.at({1, 2}));
  EXPECT_EQ(folder_.files(), 1U);  // no temporary file is left
}

TEST_F(SafetensorsTest, bytes_in_memory_are_those_of_the_file) {
  const Tensor a = normal({2, 3}, 1);
  const std::vector<std::pair<std::string, TensorView>> tensors{{"a", transpose(a, 0, 1)}};
  write_safetensors(path(), tensors, {{"k", "v"}});
  const InputFile file(path());
  std::string written(static_cast<std::size_t>(file.size()), ' ');
  file.read(0, written.data(), file.size());
  EXPECT_EQ(safetensors_bytes("memory", tensors, {{"k", "v"}}), written);
}

TEST_F(SafetensorsTest, large_tensors_of_any_strides_and_types_go_through_in_blocks) {
  const Tensor a = normal({1500, 2100}, 1);  // 12 MiB: several blocks
  write_safetensors(path(), {{"turned", transpose(a, 0, 1)}, {"scalar", Tensor::of(2.5)}}, {});
  const SafetensorsFile file(path());
  Tensor back = Tensor::empty({1500, 2100});
  file.read_into(*file.find("turned"),
                 {back.mutable_view().mutable_data(), DType::f32, {2100, 1500}, {1, 2100}});
  EXPECT_TRUE(same_bits(back, a));
  Tensor wide = Tensor::empty({2100, 1500}, DType::f64);
  file.read_into(*file.find("turned"), wide);
  EXPECT_EQ(wide.at({2099, 1499}), a.at({1499, 2099}));
  Tensor number = Tensor::empty({}, DType::f64);
  file.read_into(*file.find("scalar"), number);
  EXPECT_EQ(number.at({}), 2.5);
}

TEST_F(SafetensorsTest, shards_open_in_time_that_grows_with_their_tensors) {
  // 120,000 took 27 s when every name was looked for among all; a file of a tenth is enough to see.
  const auto seconds_to_open = [&](int tensors) {
    const Tensor one = Tensor::zeros({1});
    std::vector<std::pair<std::string, TensorView>> list;
    std::string index = "{\"weight_map\":{";
    for (int k = 0; k < tensors; ++k) {
      list.emplace_back("layers." + std::to_string(k) + ".weight", one);
      index += (k == 0 ? "\"" : ",\"") + list.back().first + "\":\"m-1.safetensors\"";
    }
    write_safetensors(folder_ / "m-1.safetensors", list, {}, true);
    write_bytes(folder_ / "m.index.json", index + "}}");
    double best = 1e9;
    for (int repeat = 0; repeat < 3; ++repeat) {
      const auto begin = std::chrono::steady_clock::now();
      const SafetensorsFile file(folder_ / "m.index.json");
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      EXPECT_EQ(file.entries().size(), static_cast<std::size_t>(tensors));
      EXPECT_NE(file.find("layers.7.weight"), nullptr);
      best = std::min(best, taken.count());
    }
    return best;
  };
  const double few = seconds_to_open(2'000);
  EXPECT_LT(seconds_to_open(32'000), 5 * 16 * few);  // squares would be 256 times as long
}

TEST_F(SafetensorsTest, W16_an_index_that_says_a_tensor_twice_or_in_the_wrong_place) {
  const Tensor a = normal({2, 2}, 1);
  write_safetensors(folder_ / "m-1.safetensors", {{"a", a}}, {});
  const std::string index = folder_ / "m.safetensors.index.json";
  const auto reading = [&](const std::string& json) {
    write_bytes(index, json);
    const std::string error = error_of([&] { SafetensorsFile file(index); });
    return error.starts_with(index + ": ") ? error.substr(index.size() + 2) : error;
  };
  EXPECT_EQ(reading(R"({"metadata":{"total_size":16},"weight_map":{"a":"m-1.safetensors"}})"), "");
  EXPECT_EQ(reading(R"({"weight_map":{"a":"m-1.safetensors","\u0061":"m-1.safetensors"}})"),
            "weight_map: a: appears twice");
  EXPECT_EQ(reading(R"({"weight_map":{"a":["m-1.safetensors"]}})"),
            "weight_map: a: is not the name of a file");
  EXPECT_EQ(reading(R"({"weight_map":{"a":1}})"), "weight_map: a: is not the name of a file");
  EXPECT_EQ(reading(R"({"weight_map":["m-1.safetensors"]})"),
            "is not an index: it has no weight_map");
  EXPECT_EQ(reading(R"({"a":{"weight_map":{"a":"m-1.safetensors"}}})"),
            "is not an index: it has no weight_map");
  EXPECT_EQ(reading(R"([{"weight_map":{"a":"m-1.safetensors"}}])"),
            "is not an index: it has no weight_map");
  EXPECT_EQ(reading("{\"weight_map\":{\"a\":\"\u202E.safetensors/\"}}"),
            "weight_map: a: \"?.safetensors/\" is not the plain name of a .safetensors file");
  EXPECT_EQ(reading("{\"a\":" + std::string(1'000'000, '[')),
            "objects and arrays nested more than 64 deep at byte 69");
}

TEST_F(SafetensorsTest, names_that_are_not_utf8_are_not_written) {
  const Tensor a = normal({2}, 1);
  EXPECT_EQ(error_of([&] {
              write_safetensors(path(), {{"a\xFF", a}}, {});
            }),
            path() + ": a\xFF: is not valid UTF-8");
  EXPECT_EQ(folder_.files(), 0U);
}

TEST_F(SafetensorsTest, an_existing_file_is_replaced_only_on_request) {
  const Tensor a = normal({2}, 1);
  const Tensor b = normal({2}, 2);
  write_safetensors(path(), {{"a", a}}, {});
  EXPECT_EQ(error_of([&] {
              write_safetensors(path(), {{"a", b}}, {});
            }),
            path() + ": already exists; replace = true overwrites it");
  EXPECT_TRUE(same_bits(SafetensorsFile(path()).read(SafetensorsFile(path()).entries()[0]), a));
  write_safetensors(path(), {{"a", b}}, {}, true);
  EXPECT_TRUE(same_bits(SafetensorsFile(path()).read(SafetensorsFile(path()).entries()[0]), b));
  EXPECT_NE(error_of([&] { write_safetensors(folder_ / "no/where", {{"a", b}}, {}); }), "");
  EXPECT_EQ(folder_.files(), 1U);
}

TEST_F(SafetensorsTest, every_truncation_and_every_flipped_bit_is_read_or_refused) {
  const Tensor a = normal({2, 2}, 1);
  write_safetensors(path(), {{"W_query.weight", a}}, {{"cephalo", "{}"}});
  const std::string whole = testing::read_bytes(path());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(error_of_bytes(whole.substr(0, length)), "") << length;
  }
  int refused = 0;
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    write_bytes(path(), flipped);
    const std::string error = error_of([&] {
      const SafetensorsFile file(path());
      for (const auto& entry : file.entries()) file.read(entry);
    });
    refused += error.empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 300);  // the rest are flips inside a name, the metadata or the numbers
}

TEST_F(SafetensorsTest, W16_an_index_with_any_byte_missing_or_bit_flipped_is_read_or_refused) {
  const Tensor a = normal({2, 2}, 1);
  write_safetensors(folder_ / "m-1.safetensors", {{"a", a}}, {});
  write_safetensors(folder_ / "m-2.safetensors", {{"b", a}}, {});
  const std::string index = folder_ / "m.safetensors.index.json";
  const std::string whole = R"({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}})";
  write_bytes(index, whole);
  const SafetensorsFile model(index);
  EXPECT_TRUE(same_bits(model.read(*model.find("b")), a));
  const auto reading = [&](const std::string& bytes) {
    write_bytes(index, bytes);
    return error_of([&] {
      const SafetensorsFile file(index);
      for (const auto& entry : file.entries()) file.read(entry);
    });
  };
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(reading(whole.substr(0, length)), "") << length;
  }
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    reading(flipped);
  }
}

}  // namespace
}  // namespace cephalo
