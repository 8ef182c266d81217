#include "runtime/text/json_part.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace fasa::text {
namespace {

using nlohmann::json;

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > 120) text = text.substr(0, 117) + "...";
  return text;
}

// A pattern that matches exactly `text`.
std::string escaped(std::string_view text) {
  std::string pattern;
  for (const char byte : text) {
    if (std::string_view("\\.+*?()|[]{}^$#&-~ \t\r\n\f\v").find(byte) != std::string_view::npos) {
      pattern += '\\';
    }
    pattern += byte;
  }
  return pattern;
}

void add_steps(const json& part, const std::string& place, const char* key,
               std::vector<JsonPart>& steps) {
  const JsonPart step(part, place);
  if (step.type() != "Sequence") {
    if (steps.size() == kMaxSteps) {
      throw InputError(fmt::format("{}: too many steps (more than {}); allowed: up to {}", place,
                                   kMaxSteps, kMaxSteps));
    }
    steps.push_back(step);
    return;
  }
  const json& parts = step.array(key);
  for (size_t i = 0; i < parts.size(); ++i) {
    add_steps(parts[i], fmt::format("{}.{}[{}]", place, key, i), key, steps);
  }
}

}  // namespace

JsonPart::JsonPart(const json& object, std::string place)
    : object_(object), place_(std::move(place)) {
  if (object_.is_object()) return;
  throw InputError(fmt::format("{} is {}; allowed: an object", place_, shown(object_)));
}

bool JsonPart::has(const char* key) const {
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

void JsonPart::fail(const char* key, std::string_view allowed) const {
  const auto found = object_.find(key);
  const std::string given = found == object_.end() ? "missing" : shown(*found);
  throw InputError(fmt::format("{}.{} is {}; allowed: {}", place_, key, given, allowed));
}

void JsonPart::refuse(std::string_view allowed) const {
  throw InputError(
      fmt::format("{}: \"{}\" is not supported; allowed: {}", place_, type(), allowed));
}

bool JsonPart::boolean(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!object_.at(key).is_boolean()) fail(key, "true or false");
  return object_.at(key).get<bool>();
}

std::string JsonPart::text(const char* key) const {
  if (!has(key) || !object_.at(key).is_string()) fail(key, "a text");
  return object_.at(key).get<std::string>();
}

std::string JsonPart::text_or(const char* key, std::string otherwise) const {
  return has(key) ? text(key) : std::move(otherwise);
}

int64_t JsonPart::integer(const char* key, int64_t low, int64_t high) const {
  const std::string allowed = fmt::format("an integer from {} to {}", low, high);
  if (!has(key) || !object_.at(key).is_number_integer()) fail(key, allowed);
  const json& value = object_.at(key);
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(high)) {
    fail(key, allowed);
  }
  const auto number = value.get<int64_t>();
  if (number < low || number > high) fail(key, allowed);
  return number;
}

std::string JsonPart::character(const char* key) const {
  std::string value = text(key);
  if (value.empty() || utf8_bytes(value[0]) != value.size()) fail(key, "one character");
  return value;
}

size_t JsonPart::choice(const char* key, std::initializer_list<std::string_view> names) const {
  const std::string name = text(key);
  size_t place = 0;
  for (const std::string_view known : names) {
    if (name == known) return place;
    ++place;
  }
  fail(key, fmt::format("{}", fmt::join(names, ", ")));
}

const std::string* JsonPart::literal(const char* key) const {
  if (!has(key) || !object_.at(key).is_object()) fail(key, R"({"String": ...} or {"Regex": ...})");
  const json& pattern = object_.at(key);
  const auto text = pattern.find("String");
  if (text == pattern.end()) return nullptr;
  if (!text->is_string() || pattern.size() != 1) fail(key, R"({"String": TEXT})");
  return &text->get_ref<const std::string&>();
}

Regex JsonPart::pattern(const char* key) const {
  const std::string where = fmt::format("{}.{}", place_, key);
  const std::string* text = literal(key);
  if (text != nullptr) {
    if (text->empty()) fail(key, "a non-empty string");
    return {escaped(*text), where};
  }
  const json& pattern = object_.at(key);
  const auto regex = pattern.find("Regex");
  if (regex == pattern.end() || !regex->is_string() || pattern.size() != 1) {
    fail(key, R"({"String": TEXT} or {"Regex": TEXT})");
  }
  return {regex->get_ref<const std::string&>(), where};
}

const json& JsonPart::array(const char* key) const {
  if (!has(key) || !object_.at(key).is_array()) fail(key, "an array");
  return object_.at(key);
}

JsonPart JsonPart::object(const char* key) const {
  if (!has(key)) fail(key, "an object");
  return {object_.at(key), fmt::format("{}.{}", place_, key)};
}

std::vector<JsonPart> steps_of(const json& part, const std::string& place, const char* key) {
  std::vector<JsonPart> steps;
  add_steps(part, place, key, steps);
  return steps;
}

}  // namespace fasa::text
