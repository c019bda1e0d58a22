#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "cephalo/core/shape.h"

namespace cephalo {

// The outermost keys of a config.json, one by one. Keys are looked up by either of their names, and
// those that were are remembered: one that nobody looks at may be one that changes the arithmetic.
// Messages begin with `path` and name key, value and rule.
class ConfigKeys {
 public:
  using Names = std::initializer_list<const char*>;

  ConfigKeys(const std::string& path, const std::string& json);
  static ConfigKeys of_file(const std::string& path);  // of at most 1 MiB
  ConfigKeys(ConfigKeys&&) noexcept;
  ConfigKeys& operator=(ConfigKeys&&) noexcept;
  ~ConfigKeys();

  // Nothing where the key is absent or null; another kind of value is an error.
  std::optional<dim_t> whole(Names names, dim_t least);
  std::optional<double> positive(const char* name);
  std::optional<double> probability(Names names);  // in [0, 1)
  std::optional<bool> boolean(const char* name);
  std::optional<std::size_t> word(const char* name, Names words);  // which of the words it is

  dim_t needed(Names names);                 // >= 1; an error where it is absent
  void only(const char* name, bool wanted);  // may be absent, but must not say anything else

  // The first key that nobody asked for, that is not in `also_known` and that is not one of
  // transformers' own which say nothing about arithmetic is an error.
  void refuse_unknown(std::span<const std::string_view> also_known = {}) const;

  const std::string& path() const { return path_; }

 private:
  using Values = std::map<std::string, nlohmann::json>;

  const nlohmann::json* find(Names names);  // null: absent, or there and null
  std::optional<double> real(Names names);
  void check(bool holds, const nlohmann::json& value, const std::string& rule) const;

  std::string path_;
  std::unique_ptr<Values> values_;
  std::set<std::string> known_;
  std::string last_;  // the key that was looked up
};

}  // namespace cephalo
