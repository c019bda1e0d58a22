#include "cephalo/io/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "cephalo/core/common_device.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/printable.h"
#include "cephalo/core/views.h"
#include "cephalo/io/file.h"
#include "cephalo/io/stored_bytes.h"

namespace cephalo {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::int64_t kLargestHeader = 1 << 20;

constexpr std::pair<std::string_view, DType> kTypes[] = {
    {"<f4", DType::f32}, {"<f8", DType::f64}, {"<f2", DType::f16},
    {"<i8", DType::i64}, {"<i4", DType::i32}, {"<i2", DType::i16},
    {"|i1", DType::i8},  {"|u1", DType::u8},  {"|b1", DType::boolean}};

struct Header {
  std::string descr;
  bool fortran_order = false;
  Shape shape;
  std::int64_t data_begin = 0;
};

// The header is a Python dict of three known entries. This reads that and nothing else.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  Header parse() {
    expect('{', "a dict");
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    while (!accept('}')) {
      const std::string key = parse_string("a key");
      expect(':', "':' after a key");
      bool* seen = key == "descr"           ? &has_descr
                   : key == "fortran_order" ? &has_order
                   : key == "shape"         ? &has_shape
                                            : nullptr;
      require(seen != nullptr, "{}: header: unknown key '{}'", path_, shown(key));
      require(!*seen, "{}: header: key '{}' appears twice", path_, key);
      *seen = true;
      if (key == "descr")
        header_.descr = parse_string("descr as a string (structures are not read)");
      if (key == "fortran_order") header_.fortran_order = parse_bool();
      if (key == "shape") parse_shape();
      if (!accept(',') && peek() != '}') complain("',' or '}'");
    }
    const std::pair<bool, const char*> keys[] = {
        {has_descr, "descr"}, {has_order, "fortran_order"}, {has_shape, "shape"}};
    for (const auto& [seen, key] : keys) {
      require(seen, "{}: header: key '{}' is missing", path_, key);
    }
    skip_spaces();
    if (at_ != text_.size()) complain("the end of the header");
    return header_;
  }

 private:
  [[noreturn]] void complain(const char* expected) const {
    fail(Error::Kind::value, "{}: header: expected {} at byte {} of {}", path_, expected, at_,
         text_.size());
  }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  char peek() {
    skip_spaces();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  void expect(char c, const char* what) {
    if (!accept(c)) complain(what);
  }

  std::string parse_string(const char* what) {
    const char quote = peek();
    if (quote != '\'' && quote != '"') complain(what);
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) complain("the end of a string");
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }

  bool parse_bool() {
    peek();
    for (const auto& [word, value] :
         {std::pair{std::string_view("True"), true}, std::pair{std::string_view("False"), false}}) {
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return value;
      }
    }
    complain("True or False for fortran_order");
  }

  void parse_shape() {
    expect('(', "shape as a tuple");
    while (!accept(')')) {
      require(header_.shape.rank() < kMaxRank, "{}: header: shape has more than {} dimensions",
              path_, kMaxRank);
      header_.shape.push_back(parse_dim());
      if (!accept(',') && peek() != ')') complain("',' or ')' in shape");
    }
  }

  dim_t parse_dim() {
    peek();
    const char* begin = text_.data() + at_;
    const char* end = text_.data() + text_.size();
    dim_t value = 0;
    const auto [stop, error] = std::from_chars(begin, end, value);
    const auto written = static_cast<std::size_t>(stop - begin);
    if (error == std::errc::result_out_of_range) {
      fail(Error::Kind::value, "{}: header: dimension {} of shape is too large", path_,
           header_.shape.rank());
    }
    if (error != std::errc()) complain("a whole number in shape");
    require(value >= 0, "{}: header: dimension {} of shape is {}, must be >= 0", path_,
            header_.shape.rank(), value);
    at_ += written;
    return value;
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t at_ = 0;
  Header header_;
};

Header read_header(const InputFile& file) {
  const std::string& path = file.path();
  constexpr std::int64_t kFixed = 8;  // magic and version
  unsigned char start[kFixed + 4] = {};
  file.read(0, start, std::min<std::int64_t>(file.size(), sizeof start));
  require(file.size() >= kFixed + 2 && std::memcmp(start, kMagic.data(), kMagic.size()) == 0,
          "{}: is not a .npy file: it does not begin with \\x93NUMPY", path);
  const int major = start[6];
  const int minor = start[7];
  require(major >= 1 && major <= 3 && minor == 0,
          "{}: version {}.{} is unknown (1.0, 2.0 and 3.0 are known)", path, major, minor);
  const std::int64_t length_bytes = major == 1 ? 2 : 4;
  std::int64_t length = 0;
  for (std::int64_t k = length_bytes - 1; k >= 0; --k) length = length * 256 + start[kFixed + k];
  const std::int64_t text_begin = kFixed + length_bytes;
  require(text_begin + length <= file.size() && length <= kLargestHeader,
          "{}: header length {} is over the {} bytes that follow it or the limit {}", path, length,
          std::max<std::int64_t>(file.size() - text_begin, 0), kLargestHeader);
  std::string text(static_cast<std::size_t>(length), '\0');
  file.read(text_begin, text.data(), length);
  require(!text.empty() && text.back() == '\n', "{}: header: does not end with a newline", path);
  Header header = HeaderParser(text, path).parse();
  header.data_begin = text_begin + length;
  return header;
}

DType dtype_of(const std::string& descr, const std::string& path) {
  for (const auto& [word, dtype] : kTypes) {
    if (descr == word) return dtype;
  }
  const bool swapped = descr.starts_with(">");
  const bool object = descr.find('O') != std::string::npos;
  fail(Error::Kind::value,
       "{}: descr: '{}' is not read{} (<f4 <f8 <f2 <i8 <i4 <i2 |i1 |u1 |b1 are)", path,
       shown(descr),
       object    ? ": objects can run code"
       : swapped ? ": big-endian; save array.astype('<f4')"
                 : "");
}

}  // namespace

Tensor read_npy(const std::string& path) {
  const InputFile file(path);
  refuse_pickle(file);
  const Header header = read_header(file);
  const DType dtype = dtype_of(header.descr, path);
  require(header.shape.rank() > 0, "{}: shape: is a scalar, an array is needed", path);
  const std::optional<dim_t> bytes = stored_bytes(header.shape, dtype);
  require(bytes.has_value(), "{}: shape: size overflows: {}", path, header.shape);
  const std::int64_t there = file.size() - header.data_begin;
  require(*bytes == there, "{}: data: shape {} of {} needs {} bytes, the file has {}", path,
          header.shape, name(dtype), *bytes, there);
  Shape stored = header.shape;
  if (header.fortran_order) std::reverse(stored.begin(), stored.end());
  Tensor tensor = Tensor::empty(stored, dtype);
  file.read(header.data_begin, tensor.mutable_view().mutable_data(), *bytes);
  if (!header.fortran_order) return tensor;
  Dims reversed;
  for (int axis = stored.rank() - 1; axis >= 0; --axis) reversed.push_back(axis);
  return Tensor::copy(permute(tensor, reversed));
}

void write_npy(const std::string& path, const TensorView& t, bool replace) {
  const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                  [&](const auto& known) { return known.second == t.dtype(); });
  require_type(type != std::end(kTypes), "{}: NumPy has no {}; convert to float32 first", path,
               name(t.dtype()));
  require_host(path.c_str(), {{"the tensor", t}});
  const std::string comma = t.rank() == 1 ? "," : "";
  std::string text = format_text("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                 type->first, joined(t.shape(), ", "), comma);
  // Padded so that the numbers begin at a multiple of 64 bytes.
  constexpr std::size_t kBefore = 10;
  const std::size_t whole = (kBefore + text.size() + 1 + 63) / 64 * 64;
  text.resize(whole - kBefore - 1, ' ');
  text += '\n';
  AtomicFile file(path, replace);
  file.write(kMagic.data(), kMagic.size());
  const unsigned char rest[] = {1, 0, static_cast<unsigned char>(text.size() % 256),
                                static_cast<unsigned char>(text.size() / 256)};
  file.write(rest, sizeof rest);
  file.write(text.data(), text.size());
  const auto dense = contiguous(t);
  file.write(dense.view().data(), t.bytes());
  file.finish();
}

}  // namespace cephalo
