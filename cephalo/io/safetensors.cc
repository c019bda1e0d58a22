#include "cephalo/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "cephalo/core/fail.h"
#include "cephalo/io/checksum.h"
#include "cephalo/io/safetensors_header.h"

namespace cephalo {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::int64_t kLengthBytes = 8;
constexpr std::uint64_t kLargestHeader = 100'000'000;

std::string read_header(const InputFile& file) {
  require(file.size() >= kLengthBytes, "{}: needs {} bytes, file has {}", file.path(), kLengthBytes,
          file.size());
  std::uint64_t length = 0;
  file.read(0, &length, kLengthBytes);
  require(length <= kLargestHeader, "{}: header length {} is over the limit {}", file.path(),
          length, kLargestHeader);
  const auto left = static_cast<std::uint64_t>(file.size() - kLengthBytes);
  require(length <= left, "{}: header length {} is over the {} bytes that follow it", file.path(),
          length, left);
  std::string json(static_cast<std::size_t>(length), '\0');
  file.read(kLengthBytes, json.data(), static_cast<std::int64_t>(length));
  return json;
}

// Elements of t for one index of its first axis.
dim_t row_length(const TensorView& t) {
  return t.rank() == 0 || t.dim(0) == 0 ? 1 : t.numel() / t.dim(0);
}

// Calls body(begin, end) for blocks of rows of about 4 MiB.
template <typename Body>
void for_row_blocks(const TensorView& t, std::int64_t row_bytes, Body&& body) {
  constexpr std::int64_t kBlock = 4 << 20;
  const dim_t rows = std::max<std::int64_t>(1, kBlock / std::max<std::int64_t>(row_bytes, 1));
  for (dim_t begin = 0; begin < t.dim(0); begin += rows) {
    body(begin, std::min(begin + rows, t.dim(0)));
  }
}

// weight_map of an index: which tensor is in which file. The files are names, not paths: an index
// must not lead anywhere else.
std::map<std::string, std::string> read_index(const InputFile& file) {
  const std::string& path = file.path();
  require(static_cast<std::uint64_t>(file.size()) <= kLargestHeader,
          "{}: {} bytes are over the limit {}", path, file.size(), kLargestHeader);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, text.data(), file.size());
  const nlohmann::json index = nlohmann::json::parse(text, nullptr, false);
  require(index.is_object() && index.contains("weight_map") && index.at("weight_map").is_object(),
          "{}: is no index: it has no weight_map", path);
  std::map<std::string, std::string> shard_of;
  for (const auto& [tensor, shard] : index.at("weight_map").items()) {
    require(shard.is_string(), "{}: weight_map: {}: is not the name of a file", path, tensor);
    const auto name = shard.get<std::string>();
    const bool plain = !name.empty() && name != "." && name != ".." &&
                       name.find('/') == std::string::npos &&
                       name.find('\0') == std::string::npos && name.ends_with(".safetensors");
    require(plain, "{}: weight_map: {}: \"{}\" is not the plain name of a .safetensors file", path,
            tensor, name);
    shard_of[tensor] = name;
  }
  return shard_of;
}

using NamedTensors = std::vector<std::pair<std::string, TensorView>>;

// The length, and the header padded so that the first tensor is aligned.
std::string make_header(const std::string& path, const NamedTensors& tensors,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t offset = 0;
  for (const auto& [name, view] : tensors) {
    require(name != "__metadata__" && !header.contains(name), "{}: {}: cannot be written twice",
            path, name);
    const std::int64_t end = checked_add(offset, static_cast<std::int64_t>(view.bytes()));
    header[name] = {{"dtype", safetensors_word(view.dtype())},
                    {"shape", std::vector<dim_t>(view.shape().begin(), view.shape().end())},
                    {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string json = header.dump();
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + json;
}

// Calls write(data, bytes) for the numbers of t in row-major order.
template <typename Write>
void write_tensor(const TensorView& t, Write&& write) {
  if (t.is_contiguous()) {
    write(t.data(), t.bytes());
    return;
  }
  const auto row_bytes = static_cast<std::int64_t>(item_size(t.dtype())) * row_length(t);
  for_row_blocks(t, row_bytes, [&](dim_t begin, dim_t end) {
    const Tensor rows = Tensor::copy(t.slice(0, begin, end));
    write(rows.data(), rows.bytes());
  });
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  if (path.ends_with(".json")) {
    open_shards();
  } else {
    open_file();
  }
}

SafetensorsFile::SafetensorsFile(InputFile file) : file_(std::move(file)) {
  open_file();
}

void SafetensorsFile::open_file() {
  refuse_pickle(file_);
  const std::string json = read_header(file_);
  data_begin_ = kLengthBytes + static_cast<std::int64_t>(json.size());
  SafetensorsHeader header = parse_safetensors_header(json, file_.size() - data_begin_, path());
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
}

void SafetensorsFile::open_shards() {
  const std::map<std::string, std::string> shard_of = read_index(file_);
  std::map<std::string, std::size_t> opened;
  for (const auto& [tensor, shard] : shard_of) opened.emplace(shard, 0);
  const std::size_t slash = path().rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path().substr(0, slash + 1);
  for (auto& [shard, number] : opened) {
    number = shards_.size();
    shards_.emplace_back(folder + shard);
    for (Entry entry : shards_.back().entries_) {
      const auto named = shard_of.find(entry.name);
      require(named != shard_of.end() && named->second == shard,
              "{}: {}: is in {}, the index says {}", path(), entry.name, shard,
              named == shard_of.end() ? "nothing of it" : named->second);
      entry.shard = number;
      entries_.push_back(entry);
    }
    metadata_.insert(shards_.back().metadata_.begin(), shards_.back().metadata_.end());
  }
  for (const auto& [tensor, shard] : shard_of) {
    require(find(tensor) != nullptr, "{}: {}: is not in {}", path(), tensor, shard);
  }
}

const SafetensorsFile::Entry* SafetensorsFile::find(const std::string& name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

Tensor SafetensorsFile::read(const Entry& entry) const {
  Tensor tensor = Tensor::empty(entry.shape, entry.dtype);
  read_into(entry, tensor);
  return tensor;
}

void SafetensorsFile::read_into(const Entry& entry, const MutableTensorView& to) const {
  require(to.shape() == entry.shape, "{}: {}: has shape {}, expected {}", path(), entry.name,
          entry.shape, to.shape());
  if (!shards_.empty()) {
    shards_[entry.shard].read_into(entry, to);
  } else if (to.dtype() == entry.dtype && to.is_contiguous()) {
    file_.read(data_begin_ + entry.begin, to.mutable_data(), entry.end - entry.begin);
  } else if (to.rank() == 0) {
    to.copy_from(read(entry));
  } else {
    const auto row_bytes = static_cast<std::int64_t>(item_size(entry.dtype)) * row_length(to);
    for_row_blocks(to, row_bytes, [&](dim_t begin, dim_t end) {
      Shape shape = to.shape();
      shape[0] = end - begin;
      Tensor rows = Tensor::empty(shape, entry.dtype);
      file_.read(data_begin_ + entry.begin + begin * row_bytes, rows.mutable_view().mutable_data(),
                 (end - begin) * row_bytes);
      to.slice(0, begin, end).copy_from(rows);
    });
  }
}

void write_safetensors(const std::string& path, const NamedTensors& tensors,
                       const std::map<std::string, std::string>& metadata, bool replace) {
  const std::string header = make_header(path, tensors, metadata);
  AtomicFile file(path, replace);
  const auto write = [&](const void* data, std::size_t bytes) { file.write(data, bytes); };
  write(header.data(), header.size());
  for (const auto& [name, view] : tensors) write_tensor(view, write);
  file.finish();
}

void write_checked_safetensors(const std::string& path, const NamedTensors& tensors,
                               const std::map<std::string, std::string>& metadata, bool replace) {
  Checksum::Value value{};
  NamedTensors all = tensors;
  all.emplace_back(kChecksumTensor,
                   TensorView(value.data(), DType::u8, {static_cast<dim_t>(value.size())}));
  const std::string header = make_header(path, all, metadata);
  AtomicFile file(path, replace);
  Checksum checksum;
  const auto write = [&](const void* data, std::size_t bytes) {
    checksum.add(data, bytes);
    file.write(data, bytes);
  };
  write(header.data(), header.size());
  for (const auto& [name, view] : tensors) write_tensor(view, write);
  value = checksum.value();
  file.write(value.data(), value.size());
  file.finish();
}

}  // namespace cephalo
