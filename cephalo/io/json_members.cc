#include <algorithm>
#include <climits>
#include <utility>

#include "cephalo/core/fail.h"
#include "cephalo/core/printable.h"
#include "cephalo/io/json.h"

namespace cephalo {

std::string shown_json(const Json& value) {
  return to_string(shown(value.dump()));
}

JsonMembers::JsonMembers(const Json& object, std::string name, std::int64_t most)
    : object_(object), name_(std::move(name)), most_(most) {
  require(object.is_object(), "{}: is not a JSON object", name_);
}

const Json& JsonMembers::at(const char* key) const {
  const Json* found = object_.find(key);
  require(found != nullptr, "{}: {}: is missing", name_, key);
  return *found;
}

void JsonMembers::refuse(const char* key, const std::string& rule) const {
  fail(Error::Kind::value, "{}: {}: {} must be {}", name_, key, shown_json(at(key)), rule);
}

std::int64_t JsonMembers::whole(const char* key, std::int64_t most) const {
  const Json& value = at(key);
  const bool fits = value.is_unsigned() && value.as_uint64() <= static_cast<std::uint64_t>(most);
  if (!fits) refuse(key, format_text("a whole number from 0 to {}", most));
  return value.as_int64();
}

void JsonMembers::operator()(const char* key, bool& to) const {
  if (!at(key).is_boolean()) refuse(key, "true or false");
  to = at(key).as_bool();
}

void JsonMembers::operator()(const char* key, int& to) const {
  to = static_cast<int>(whole(key, std::min<std::int64_t>(most_, INT_MAX)));
}

void JsonMembers::operator()(const char* key, std::int64_t& to) const {
  to = whole(key, most_);
}

void JsonMembers::operator()(const char* key, std::uint64_t& to) const {
  if (!at(key).is_unsigned()) refuse(key, "a whole number from 0 to 2^64 - 1");
  to = at(key).as_uint64();
}

// The parser refuses numbers that no double holds, and JSON has neither NaN nor infinity.
void JsonMembers::operator()(const char* key, double& to) const {
  if (!at(key).is_number()) refuse(key, "a number");
  to = at(key).as_double();
}

void JsonMembers::operator()(const char* key, std::string& to) const {
  if (!at(key).is_string()) refuse(key, "a string");
  to = at(key).as_string();
}

void JsonMembers::operator()(const char* key, std::vector<std::string>& to) const {
  const Json& list = at(key);
  const bool fits = list.is_array() && std::all_of(list.elements().begin(), list.elements().end(),
                                                   [](const Json& one) { return one.is_string(); });
  if (!fits) refuse(key, "a list of strings");
  to.clear();
  for (const Json& one : list.elements()) to.push_back(one.as_string());
}

}  // namespace cephalo
