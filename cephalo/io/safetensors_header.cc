#include "cephalo/io/safetensors_header.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/printable.h"
#include "cephalo/io/json.h"
#include "cephalo/io/stored_bytes.h"

namespace cephalo {
namespace {

constexpr std::pair<const char*, DType> kTypes[] = {
    {"F32", DType::f32}, {"F64", DType::f64},     {"BF16", DType::bf16}, {"F16", DType::f16},
    {"I64", DType::i64}, {"I32", DType::i32},     {"I16", DType::i16},   {"I8", DType::i8},
    {"U8", DType::u8},   {"BOOL", DType::boolean}};

constexpr std::int64_t kLengthBytes = 8;
// Tensors of the largest models are some 150,000 in all their files, with 14 values each.
constexpr JsonLimits kLimits = {
    .bytes = 100'000'000, .values = 5'000'000, .string_bytes = std::int64_t{8} << 20, .depth = 8};
constexpr std::size_t kLongestName = 1024;
constexpr std::size_t kMostMetadata = 65536;

// Reads the one shape of JSON that the format allows, event by event: nothing is built that the
// format does not name, so depth and size of hostile input cost nothing.
class HeaderReader : public JsonEvents {
 public:
  HeaderReader(const std::string& path, SafetensorsHeader& header) : path_(path), header_(header) {}

  bool start_object() override {
    ++depth_;
    if (depth_ == 1) return true;
    if (depth_ == 2 && !in_array_) {
      inside_metadata_ = name_ == "__metadata__";
      require(!inside_metadata_ || !has_metadata_, "{}: {}: appears twice", path_, name_);
      has_metadata_ = has_metadata_ || inside_metadata_;
      begin_entry();
      return true;
    }
    complain("an object does not belong here");
  }

  bool key(std::string& text) override {
    require(text.size() <= kLongestName, "{}: {}: a name may have {} bytes at most", path_,
            shown(text), kLongestName);
    if (depth_ == 1) {
      name_ = text;
      field_.clear();
    } else {
      field_ = text;
      require(fields_.insert(text).second, "{}: {}: {} appears twice", path_, shown(name_),
              shown(field_));
      const bool known = field_ == "dtype" || field_ == "shape" || field_ == "data_offsets";
      require(inside_metadata_ || known, "{}: {}: unknown field {}", path_, shown(name_),
              shown(field_));
      require(fields_.size() <= kMostMetadata, "{}: {}: more than {} names", path_, shown(name_),
              kMostMetadata);
    }
    return true;
  }

  bool end_object() override {
    if (depth_ == 2 && !inside_metadata_) end_entry();
    --depth_;
    inside_metadata_ = false;
    return true;
  }

  bool start_array() override {
    require(depth_ > 0, "{}: header: is an array, not an object", path_);
    const bool allowed = !in_array_ && depth_ == 2 && !inside_metadata_ && field_ != "dtype";
    if (!allowed) complain("an array does not belong here");
    in_array_ = true;
    return true;
  }
  bool end_array() override {
    in_array_ = false;
    return true;
  }

  bool string(std::string& text) override {
    if (depth_ == 2 && inside_metadata_) {
      header_.metadata[field_] = text;
      return true;
    }
    if (depth_ != 2 || in_array_ || field_ != "dtype") {
      complain(format_text("\"{}\" is not a whole number", shown(text)));
    }
    read_dtype(text);
    return true;
  }

  bool number_unsigned(std::uint64_t value) override {
    if (depth_ != 2 || !in_array_)
      complain(format_text("the number {} does not belong here", value));
    require(value <= static_cast<std::uint64_t>(INT64_MAX), "{}: {}: {}: {} is too large", path_,
            shown(name_), field_, value);
    const auto number = static_cast<std::int64_t>(value);
    if (field_ == "shape") {
      require(entry_.shape.rank() < kMaxRank, "{}: {}: shape: more than {} dimensions", path_,
              shown(name_), kMaxRank);
      entry_.shape.push_back(number);
    } else {
      offsets_.push_back(number);
      require(offsets_.size() <= 2, "{}: {}: data_offsets: more than two numbers", path_,
              shown(name_));
    }
    return true;
  }
  bool number_integer(std::int64_t value) override {
    complain(format_text("{} is negative", value));
  }
  bool number_float(double, const std::string& text) override {
    complain(format_text("{} is not a whole number below 2^63", shown(text)));
  }
  bool boolean(bool) override { complain("true or false does not belong here"); }
  bool null() override { complain("null does not belong here"); }

 private:
  [[noreturn]] void complain(const std::string& what) const {
    if (depth_ == 0) fail(Error::Kind::value, "{}: header: is not an object", path_);
    fail(Error::Kind::value, "{}: {}{}{}: {}", path_, shown(name_), field_.empty() ? "" : ": ",
         shown(field_), what);
  }

  void begin_entry() {
    fields_.clear();
    offsets_.clear();
    entry_ = {name_, DType::f32, {}, 0, 0, 0};
  }

  void read_dtype(const std::string& text) {
    for (const auto& [word, dtype] : kTypes) {
      if (text == word) {
        entry_.dtype = dtype;
        return;
      }
    }
    fail(Error::Kind::value,
         "{}: {}: dtype: unknown type \"{}\" (F32 F64 BF16 F16 I64 I32 I16 I8 U8 BOOL are known)",
         path_, shown(name_), shown(text));
  }

  void end_entry() {
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      require(fields_.contains(field), "{}: {}: {} is missing", path_, shown(name_), field);
    }
    require(offsets_.size() == 2, "{}: {}: data_offsets: got {} numbers, expected 2", path_,
            shown(name_), offsets_.size());
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    require(entry_.begin <= entry_.end, "{}: {}: data_offsets: end ({}) is before begin ({})",
            path_, shown(name_), entry_.end, entry_.begin);
    const std::optional<dim_t> bytes = stored_bytes(entry_.shape, entry_.dtype);
    require(bytes.has_value(), "{}: {}: shape: size overflows: {}", path_, shown(name_),
            entry_.shape);
    require(*bytes == entry_.end - entry_.begin,
            "{}: {}: data_offsets hold {} bytes, shape {} of {} needs {}", path_, shown(name_),
            entry_.end - entry_.begin, entry_.shape, cephalo::name(entry_.dtype), *bytes);
    header_.entries.push_back(entry_);
  }

  const std::string& path_;
  SafetensorsHeader& header_;
  int depth_ = 0;
  bool in_array_ = false;
  bool inside_metadata_ = false;
  bool has_metadata_ = false;
  std::string name_;   // of the tensor that is read
  std::string field_;  // of its object
  std::set<std::string> fields_;
  std::vector<std::int64_t> offsets_;
  SafetensorsFile::Entry entry_{};
};

// Sorted by offset the tensors begin at 0 and touch, and the last one ends with the file.
void check_layout(const SafetensorsHeader& header, std::int64_t data_bytes,
                  const std::string& path) {
  std::int64_t expected = 0;
  const SafetensorsFile::Entry* before = nullptr;
  for (const SafetensorsFile::Entry& entry : header.entries) {
    if (entry.begin != expected) {
      fail(Error::Kind::value, "{}: {}: begins at {}, {} ends at {}: {}", path, shown(entry.name),
           entry.begin, shown(before != nullptr ? before->name : "the header"), expected,
           entry.begin < expected ? "they overlap" : "a hole between them");
    }
    expected = entry.end;
    before = &entry;
  }
  require(expected == data_bytes, "{}: tensors end at byte {} of the data, the file has {}", path,
          expected, data_bytes);
}

void check_names(const SafetensorsHeader& header, const std::string& path) {
  const auto twice = std::adjacent_find(header.by_name.begin(), header.by_name.end(),
                                        [&](std::uint32_t a, std::uint32_t b) {
                                          return header.entries[a].name == header.entries[b].name;
                                        });
  require(twice == header.by_name.end(), "{}: {}: appears twice", path,
          shown(twice == header.by_name.end() ? "" : header.entries[*twice].name));
}

// The length of the JSON, which stands before it.
std::int64_t header_length(const InputFile& file) {
  require(file.size() >= kLengthBytes, "{}: needs {} bytes, file has {}", file.path(), kLengthBytes,
          file.size());
  std::uint64_t length = 0;
  file.read(0, &length, kLengthBytes);
  require(length <= static_cast<std::uint64_t>(kLimits.bytes),
          "{}: header length {} is over the limit {}", file.path(), length, kLimits.bytes);
  const auto left = static_cast<std::uint64_t>(file.size() - kLengthBytes);
  require(length <= left, "{}: header length {} is over the {} bytes that follow it", file.path(),
          length, left);
  return static_cast<std::int64_t>(length);
}

}  // namespace

const char* safetensors_word(DType dtype) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&](const auto& known) { return known.second == dtype; });
  return found->first;  // every DType is in the table
}

std::vector<std::uint32_t> order_by_name(const std::vector<SafetensorsFile::Entry>& entries) {
  std::vector<std::uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return entries[a].name < entries[b].name; });
  return order;
}

SafetensorsHeader read_safetensors_header(const InputFile& file) {
  const std::string& path = file.path();
  const std::int64_t length = header_length(file);
  SafetensorsHeader header;
  header.data_begin = kLengthBytes + length;
  HeaderReader reader(path, header);
  // Trailing spaces pad the header; anything else after the object is an error.
  read_json(file, kLengthBytes, length, path + ": header", kLimits, reader);
  const auto earlier = [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  };
  if (!std::is_sorted(header.entries.begin(), header.entries.end(), earlier)) {
    std::stable_sort(header.entries.begin(), header.entries.end(), earlier);
  }
  header.by_name = order_by_name(header.entries);
  check_names(header, path);
  check_layout(header, file.size() - header.data_begin, path);
  return header;
}

}  // namespace cephalo
