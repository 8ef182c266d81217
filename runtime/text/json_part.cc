#include "runtime/text/json_part.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace fasa::text {
namespace {

using nlohmann::json;

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

void JsonPart::refuse(std::string_view allowed) const {
  throw InputError(
      fmt::format("{}: \"{}\" is not supported; allowed: {}", name(), type(), allowed));
}

std::string JsonPart::character(const char* key) const {
  std::string value = required_text(key);
  if (value.empty() || utf8_bytes(value[0]) != value.size()) fail(key, "one character");
  return value;
}

size_t JsonPart::choice(const char* key, std::initializer_list<std::string_view> names) const {
  const std::string name = required_text(key);
  size_t place = 0;
  for (const std::string_view known : names) {
    if (name == known) return place;
    ++place;
  }
  fail(key, fmt::format("{}", fmt::join(names, ", ")));
}

const std::string* JsonPart::literal(const char* key) const {
  if (!has(key) || !at(key).is_object()) fail(key, R"({"String": ...} or {"Regex": ...})");
  const json& pattern = at(key);
  const auto text = pattern.find("String");
  if (text == pattern.end()) return nullptr;
  if (!text->is_string() || pattern.size() != 1) fail(key, R"({"String": TEXT})");
  return &text->get_ref<const std::string&>();
}

Regex JsonPart::pattern(const char* key) const {
  const std::string where = fmt::format("{}.{}", name(), key);
  const std::string* text = literal(key);
  if (text != nullptr) {
    if (text->empty()) fail(key, "a non-empty string");
    return {escaped(*text), where};
  }
  const json& pattern = at(key);
  const auto regex = pattern.find("Regex");
  if (regex == pattern.end() || !regex->is_string() || pattern.size() != 1) {
    fail(key, R"({"String": TEXT} or {"Regex": TEXT})");
  }
  return {regex->get_ref<const std::string&>(), where};
}

const json& JsonPart::array(const char* key) const {
  if (!has(key) || !at(key).is_array()) fail(key, "an array");
  return at(key);
}

JsonPart JsonPart::object(const char* key) const {
  if (!has(key)) fail(key, "an object");
  return {at(key), fmt::format("{}.{}", name(), key)};
}

std::vector<JsonPart> steps_of(const json& part, const std::string& place, const char* key) {
  std::vector<JsonPart> steps;
  add_steps(part, place, key, steps);
  return steps;
}

}  // namespace fasa::text
