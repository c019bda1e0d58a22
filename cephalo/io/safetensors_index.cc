#include "cephalo/io/safetensors_index.h"

#include <algorithm>
#include <map>

#include "cephalo/core/fail.h"
#include "cephalo/core/printable.h"
#include "cephalo/io/json.h"

namespace cephalo {
namespace {

constexpr JsonLimits kLimits = {
    .bytes = 100'000'000, .values = 1'000'000, .string_bytes = std::int64_t{1} << 20};

// Reads weight_map and passes over everything else.
class IndexReader : public JsonEvents {
 public:
  IndexReader(const std::string& path, ShardIndex& index) : path_(path), index_(index) {}

  bool key(std::string& text) override {
    if (depth_ == 1) before_map_ = text == "weight_map";
    if (depth_ == 2 && in_map_) tensor_ = text;
    return true;
  }
  bool start_object() override {
    begin();
    if (depth_ == 2 && before_map_) has_map_ = in_map_ = true;
    return true;
  }
  bool start_array() override { return begin(); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool null() override { return pass_over(); }
  bool boolean(bool) override { return pass_over(); }
  bool number_integer(std::int64_t) override { return pass_over(); }
  bool number_unsigned(std::uint64_t) override { return pass_over(); }
  bool number_float(double, const std::string&) override { return pass_over(); }
  bool string(std::string& text) override {
    if (!in_map_) return true;
    const bool plain = !text.empty() && text != "." && text != ".." &&
                       text.find('/') == std::string::npos &&
                       text.find('\0') == std::string::npos && text.ends_with(".safetensors");
    require(plain, "{}: weight_map: {}: \"{}\" is not the plain name of a .safetensors file", path_,
            shown(tensor_), shown(text));
    const auto number = static_cast<std::uint32_t>(numbers_.size());
    index_.shard_of.emplace_back(tensor_, numbers_.emplace(text, number).first->second);
    return true;
  }

  bool has_map() const { return has_map_; }
  // Files by name, with the numbers that they have in shard_of.
  const std::map<std::string, std::uint32_t>& numbers() const { return numbers_; }

 private:
  bool pass_over() const {
    require(!in_map_, "{}: weight_map: {}: is not the name of a file", path_, shown(tensor_));
    return true;
  }
  bool begin() {
    pass_over();
    ++depth_;
    return true;
  }
  bool end() {
    --depth_;
    in_map_ = false;  // nothing lies inside of it that could end before
    return true;
  }

  const std::string& path_;
  ShardIndex& index_;
  std::map<std::string, std::uint32_t> numbers_;
  std::int64_t depth_ = 0;
  bool before_map_ = false;  // the key was read, its value was not
  bool in_map_ = false;
  bool has_map_ = false;
  std::string tensor_;
};

}  // namespace

const std::uint32_t* ShardIndex::find(const std::string& tensor) const {
  const auto found =
      std::lower_bound(shard_of.begin(), shard_of.end(), tensor,
                       [](const auto& one, const std::string& name) { return one.first < name; });
  return found == shard_of.end() || found->first != tensor ? nullptr : &found->second;
}

ShardIndex read_shard_index(const InputFile& file) {
  const std::string& path = file.path();
  ShardIndex index;
  IndexReader reader(path, index);
  read_json(file, 0, file.size(), path, kLimits, reader);
  require(reader.has_map(), "{}: is not an index: it has no weight_map", path);
  std::vector<std::uint32_t> place(reader.numbers().size());
  for (const auto& [shard, number] : reader.numbers()) {
    place[number] = static_cast<std::uint32_t>(index.shards.size());
    index.shards.push_back(shard);
  }
  for (auto& [tensor, shard] : index.shard_of) shard = place[shard];
  std::sort(index.shard_of.begin(), index.shard_of.end());
  const auto twice =
      std::adjacent_find(index.shard_of.begin(), index.shard_of.end(),
                         [](const auto& a, const auto& b) { return a.first == b.first; });
  require(twice == index.shard_of.end(), "{}: weight_map: {}: appears twice", path,
          shown(twice == index.shard_of.end() ? "" : twice->first));
  return index;
}

}  // namespace cephalo
