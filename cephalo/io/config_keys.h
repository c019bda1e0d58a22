#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "cephalo/core/shape.h"

namespace cephalo {

class Json;

// What configurations call one of our options; the first name is the one that is written. `ours`:
// a key that no GPT-2 needs, whose value is always the same there.
struct ConfigKey {
  using Names = std::array<const char*, 3>;
  const char* option;
  Names names;
  bool ours = false;
};

// The keys of a GPT: those of a Hugging Face GPT-2 and, beside them, the book's; in the order in
// which they are written.
std::span<const ConfigKey> gpt_config_keys();

// The outermost keys of a config.json, one by one, asked for by the option that they set or, where
// there is none, by their own name. A key that nobody knows may be one that changes the arithmetic.
// Messages begin with `path` and name key, value and rule.
class ConfigKeys {
 public:
  ConfigKeys(const std::string& path, const std::string& json);
  static ConfigKeys of_file(const std::string& path);  // of at most 1 MiB
  ConfigKeys(ConfigKeys&&) noexcept;
  ConfigKeys& operator=(ConfigKeys&&) noexcept;
  ~ConfigKeys();

  // Nothing where the key is absent or null; another kind of value is an error.
  std::optional<dim_t> whole(const char* option, dim_t least);
  std::optional<double> positive(const char* option);
  std::optional<double> probability(const char* option);  // in [0, 1)
  std::optional<bool> boolean(const char* option);
  // Which of the words it is.
  std::optional<std::size_t> word(const char* option, std::span<const char* const> words);

  dim_t needed(const char* option);          // >= 1; an error where it is absent
  void only(const char* name, bool wanted);  // may be absent, but must not say anything else

  // The first key that nobody asked for, that sets none of our options and that is not one of
  // transformers' own which say nothing about arithmetic is an error.
  void refuse_unknown() const;

  const std::string& path() const { return path_; }

 private:
  using Values = std::map<std::string, Json>;

  const Json* find(const char* option);  // null: absent, or there and null
  std::optional<double> real(const char* option);
  void check(bool holds, const Json& value, const std::string& rule) const;

  std::string path_;
  std::unique_ptr<Values> values_;
  std::set<std::string> known_;  // keys that were asked for
  std::string last_;             // the key that was looked up
};

}  // namespace cephalo
