#include "cephalo/io/json_value.h"

#include <algorithm>
#include <utility>

#include "cephalo/core/fail.h"

namespace cephalo {
namespace {

template <typename Members>
auto find_member(Members& members, std::string_view name) {
  return std::find_if(members.begin(), members.end(),
                      [&](const JsonMember& member) { return member.name == name; });
}

}  // namespace

Json::Json() noexcept : value_(nullptr) {}
Json::Json(const char* text) : value_(std::string(text)) {}
Json::Json(std::string text) : value_(std::move(text)) {}
Json::Json(std::initializer_list<JsonMember> members) : value_(std::vector<JsonMember>(members)) {}
Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

Json Json::of_bool(bool value) {
  Json json;
  json.value_ = value;
  return json;
}

Json Json::of_int(std::int64_t value) {
  Json json;
  json.value_ = value;
  return json;
}

Json Json::of_uint(std::uint64_t value) {
  Json json;
  json.value_ = value;
  return json;
}

Json Json::of_double(double value) {
  Json json;
  json.value_ = value;
  return json;
}

Json Json::array() {
  Json json;
  json.value_.emplace<std::vector<Json>>();
  return json;
}

Json Json::object() {
  Json json;
  json.value_.emplace<std::vector<JsonMember>>();
  return json;
}

bool Json::as_bool() const {
  return std::get<bool>(value_);
}

std::int64_t Json::as_int64() const {
  return is_unsigned() ? static_cast<std::int64_t>(as_uint64()) : std::get<std::int64_t>(value_);
}

std::uint64_t Json::as_uint64() const {
  return std::get<std::uint64_t>(value_);
}

double Json::as_double() const {
  if (is_unsigned()) return static_cast<double>(as_uint64());
  return is_whole() ? static_cast<double>(as_int64()) : std::get<double>(value_);
}

const std::string& Json::as_string() const {
  return std::get<std::string>(value_);
}

const std::vector<Json>& Json::elements() const {
  return std::get<std::vector<Json>>(value_);
}

const std::vector<JsonMember>& Json::members() const {
  return std::get<std::vector<JsonMember>>(value_);
}

const Json* Json::find(std::string_view name) const {
  if (!is_object()) return nullptr;
  const auto found = find_member(members(), name);
  return found == members().end() ? nullptr : &found->value;
}

const Json& Json::at(std::string_view name) const {
  const Json* found = find(name);
  require(found != nullptr, "JSON: {}: is missing", name);
  return *found;
}

Json& Json::operator[](std::string_view name) {
  if (is_null()) *this = object();
  auto& members = std::get<std::vector<JsonMember>>(value_);
  const auto found = find_member(members, name);
  if (found != members.end()) return found->value;
  members.push_back({std::string(name), Json()});
  return members.back().value;
}

Json& Json::operator[](std::size_t element) {
  return std::get<std::vector<Json>>(value_).at(element);
}

void Json::add(std::string name, Json value) {
  if (is_null()) *this = object();
  std::get<std::vector<JsonMember>>(value_).push_back({std::move(name), std::move(value)});
}

void Json::erase(std::string_view name) {
  auto& members = std::get<std::vector<JsonMember>>(value_);
  const auto found = find_member(members, name);
  if (found != members.end()) members.erase(found);
}

void Json::push_back(Json element) {
  if (is_null()) *this = array();
  std::get<std::vector<Json>>(value_).push_back(std::move(element));
}

void Json::sort_members() {
  if (auto* elements = std::get_if<std::vector<Json>>(&value_)) {
    for (Json& element : *elements) element.sort_members();
  }
  auto* members = std::get_if<std::vector<JsonMember>>(&value_);
  if (members == nullptr) return;
  std::stable_sort(members->begin(), members->end(),
                   [](const JsonMember& a, const JsonMember& b) { return a.name < b.name; });
  // From behind: of equal names the last one is met first.
  const auto doubled =
      std::unique(members->rbegin(), members->rend(),
                  [](const JsonMember& a, const JsonMember& b) { return a.name == b.name; });
  members->erase(members->begin(), doubled.base());
  for (JsonMember& member : *members) member.value.sort_members();
}

}  // namespace cephalo
