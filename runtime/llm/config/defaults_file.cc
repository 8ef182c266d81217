#include "runtime/llm/config/defaults_file.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/io/json_fields.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

// Writes Python's words for numbers that JSON lacks as strings.
std::string quote_python_numbers(std::string_view text) {
  constexpr std::string_view kWords[] = {"NaN", "Infinity", "-Infinity"};
  std::string quoted;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (in_string && text[at] == '\\') {
      quoted += text.substr(at++, 2);
      continue;
    }
    if (text[at] == '"') in_string = !in_string;
    std::string_view word;
    for (const std::string_view known : kWords) {
      if (!in_string && text.substr(at).starts_with(known)) word = known;
    }
    if (word.empty()) {
      quoted += text[at];
    } else {
      quoted += fmt::format("\"{}\"", word);
      at += word.size() - 1;
    }
  }
  return quoted;
}

// A number, or a text of one; nullopt for anything else.
std::optional<double> number_in(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

}  // namespace

DefaultsFile::DefaultsFile(std::string_view json, std::string name) : name_(std::move(name)) {
  try {
    object_ = parse_json(quote_python_numbers(json), name_);
    if (object_.is_object()) return;
    log_warning_once(fmt::format("{}: not a JSON object; the file is ignored", name_));
  } catch (const InputError& error) {
    log_warning_once(fmt::format("{}; the file is ignored", error.what()));
  }
  object_ = Json::object();
}

bool DefaultsFile::has(const char* key) const {
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

void DefaultsFile::warn(const char* key, const Json& value, std::string_view effect) const {
  std::string given = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (given.size() > 80) given.replace(77, given.npos, "...");
  log_warning_once(fmt::format("{}: {} = {}; {}", name_, key, given, effect));
}

std::optional<double> DefaultsFile::number(const Rule& rule) const {
  if (!has(rule.key)) return std::nullopt;
  const Json& value = object_.at(rule.key);
  const auto given = number_in(value);
  const bool usable = given && *given >= rule.low && *given <= rule.high &&
                      (!rule.integer || *given == std::floor(*given));
  if (usable) {
    const bool usual = rule.integer ? value.is_number_integer() : value.is_number();
    if (!usual) warn(rule.key, value, fmt::format("taken as {}", *given));
    return given;
  }
  warn(rule.key, value,
       fmt::format("allowed: {}{} to {}; taken as {}, {}", rule.integer ? "integers from " : "",
                   rule.low, rule.high, rule.otherwise, rule.meaning));
  return rule.otherwise;
}

bool DefaultsFile::flag(const char* key) const {
  if (!has(key)) return false;
  const Json& value = object_.at(key);
  if (value.is_boolean()) return value.get<bool>();
  const bool is_true = value.is_number() ? value.get<double>() != 0 : value == "true";
  warn(key, value, fmt::format("allowed: true, false; taken as {}", is_true));
  return is_true;
}

std::vector<int32_t> DefaultsFile::ids(const char* key) const {
  if (!has(key)) return {};
  const Json& value = object_.at(key);
  std::vector<int32_t> ids;
  const auto add = [&](const Json& one) {
    const auto id = number_in(one);
    constexpr double kMax = std::numeric_limits<int32_t>::max();
    if (id && *id >= -1 && *id <= kMax && *id == std::floor(*id)) {
      if (!one.is_number_integer()) warn(key, value, fmt::format("{} is taken as an id", *id));
      ids.push_back(static_cast<int32_t>(*id));
    } else {
      warn(key, value, "allowed: token ids; others are ignored");
    }
  };
  if (value.is_array()) {
    for (const Json& one : value) add(one);
  } else {
    add(value);
  }
  return ids;
}

}  // namespace fasa
