#include "cephalo/io/safetensors.h"

#include <algorithm>
#include <bit>
#include <set>

#include "cephalo/core/common_device.h"
#include "cephalo/core/fail.h"
#include "cephalo/core/printable.h"
#include "cephalo/io/checksum.h"
#include "cephalo/io/json.h"
#include "cephalo/io/safetensors_header.h"
#include "cephalo/io/safetensors_index.h"

namespace cephalo {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

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

using NamedTensors = std::vector<std::pair<std::string, TensorView>>;

// The length, and the header padded so that the first tensor is aligned.
std::string make_header(const std::string& path, const NamedTensors& tensors,
                        const std::map<std::string, std::string>& metadata) {
  constexpr const char* kMetadata = "__metadata__";
  std::vector<std::string> members;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : metadata) {
      pairs.push_back(quoted_json(key, path) + ":" + quoted_json(value, path));
    }
    members.push_back(format_text("\"{}\":{{{}}}", kMetadata, joined(pairs, ",")));
  }
  std::set<std::string_view> names;
  std::int64_t offset = 0;
  for (const auto& [name, view] : tensors) {
    require(name != kMetadata && names.insert(name).second, "{}: {}: cannot be written twice", path,
            shown(name));
    require_host(path.c_str(), {{name.c_str(), view}});
    const std::int64_t end = checked_add(offset, static_cast<std::int64_t>(view.bytes()));
    members.push_back(format_text(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                  quoted_json(name, path), safetensors_word(view.dtype()),
                                  joined(view.shape(), ","), offset, end));
    offset = end;
  }
  std::string json = format_text("{{{}}}", joined(members, ","));
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
  SafetensorsHeader header = read_safetensors_header(file_);
  data_begin_ = header.data_begin;
  entries_ = std::move(header.entries);
  by_name_ = std::move(header.by_name);
  metadata_ = std::move(header.metadata);
}

void SafetensorsFile::open_shards() {
  const ShardIndex index = read_shard_index(file_);
  const std::size_t slash = path().rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path().substr(0, slash + 1);
  for (const std::string& shard : index.shards) {
    const std::size_t number = shards_.size();
    shards_.emplace_back(folder + shard);
    for (Entry entry : shards_.back().entries_) {
      const std::uint32_t* named = index.find(entry.name);
      require(named != nullptr, "{}: {}: is in {}, but the index does not mention it", path(),
              shown(entry.name), shown(shard));
      require(*named == number, "{}: {}: is in {}, the index says {}", path(), shown(entry.name),
              shown(shard), shown(index.shards[*named]));
      entry.shard = number;
      entries_.push_back(std::move(entry));
    }
    metadata_.insert(shards_.back().metadata_.begin(), shards_.back().metadata_.end());
  }
  by_name_ = order_by_name(entries_);
  for (const auto& [tensor, shard] : index.shard_of) {
    require(find(tensor) != nullptr, "{}: {}: is not in {}", path(), shown(tensor),
            shown(index.shards[shard]));
  }
}

const SafetensorsFile::Entry* SafetensorsFile::find(const std::string& name) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [&](std::uint32_t place, const std::string& wanted) {
                                        return entries_[place].name < wanted;
                                      });
  if (found == by_name_.end() || entries_[*found].name != name) return nullptr;
  return &entries_[*found];
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

std::string safetensors_bytes(const std::string& name, const NamedTensors& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::string bytes = make_header(name, tensors, metadata);
  for (const auto& [tensor, view] : tensors) {
    write_tensor(view, [&](const void* data, std::size_t count) {
      bytes.append(static_cast<const char*>(data), count);
    });
  }
  return bytes;
}

}  // namespace cephalo
