#include "bindings/http/api/request_fields.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "bindings/http/api_error.h"
#include "bindings/http/large_integers.h"
#include "runtime/base/error.h"
#include "runtime/io/json_fields.h"

namespace fasa::serve {
namespace {

constexpr size_t kShown = 40;  // of a string, in messages

// The code unit of an escape, u and four digits; nothing if there is none at this place.
std::optional<unsigned> escaped_unit(std::string_view text, size_t at) {
  constexpr size_t kSize = 6;
  if (at + kSize > text.size() || text[at] != '\\' || text[at + 1] != 'u') return std::nullopt;
  unsigned unit = 0;
  const char* const digits = text.data() + at + 2;
  const auto [end, error] = std::from_chars(digits, digits + 4, unit, 16);
  return error == std::errc() && end == digits + 4 ? std::optional(unit) : std::nullopt;
}

// Clients cut texts within a character: halves of surrogate pairs and bytes that are no UTF-8
// become U+FFFD.
std::string repaired(const std::string& body) {
  const std::string text = Json::parse(json_text(Json(body))).get<std::string>();
  const auto is_high = [](unsigned unit) { return unit >= 0xD800 && unit < 0xDC00; };
  const auto is_low = [](unsigned unit) { return unit >= 0xDC00 && unit < 0xE000; };
  std::string whole;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '\\') {
      whole += text[at++];
      continue;
    }
    const auto unit = escaped_unit(text, at);
    if (!unit) {
      whole += text.substr(at, 2);  // another escape
      at += 2;
      continue;
    }
    const auto next = escaped_unit(text, at + 6);
    const bool pair = is_high(*unit) && next && is_low(*next);
    const bool half = !pair && (is_high(*unit) || is_low(*unit));
    whole += half ? "\\ufffd" : text.substr(at, pair ? 12 : 6);
    at += pair ? 12 : 6;
  }
  return whole;
}

// Some clients write 1.0 for 1.
bool is_whole(const Json& value) {
  constexpr double kMost = 1e15;  // doubles hold every whole number up to here
  if (!value.is_number_float()) return value.is_number_integer();
  const auto number = value.get<double>();
  return std::trunc(number) == number && std::abs(number) <= kMost;
}

}  // namespace

std::string kind_of(const Json& json) {
  if (json.is_null()) return "null";
  if (json.is_boolean()) return json.get<bool>() ? "true" : "false";
  if (json.is_number()) return "the number " + json.dump();
  if (json.is_array()) {
    return fmt::format("a list of {} {}", json.size(), json.size() == 1 ? "item" : "items");
  }
  if (json.is_object()) return "an object";
  return fmt::format("the string \"{}\"", json.get<std::string>().substr(0, kShown));
}

namespace {

Json parse_text(const std::string& text) {
  try {
    return parse_json<Json>(text, "body");
  } catch (const InputError& error) {
    try {
      return parse_json<Json>(repaired(text), "body");
    } catch (const InputError&) {
      throw ApiError(400, "invalid_request_error", error.what(), "", "invalid_json");
    }
  }
}

}  // namespace

Json parse_body(const std::string& body) {
  Json parsed = parse_text(body);
  const std::string marked = with_marked_integers(body);
  if (marked.size() == body.size() || !parsed.is_object()) return parsed;
  const Json kept = parse_text(marked);
  for (const char* const name : {"messages", "input"}) {
    if (kept.contains(name)) parsed[name] = kept[name];
  }
  return parsed;
}

std::optional<Json> parse_arguments(const std::string& text) {
  try {
    return parse_text(with_marked_integers(text));
  } catch (const ApiError&) {
    return std::nullopt;
  }
}

std::string json_text(const Json& json) {
  return without_marked_integers(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

const Json& member_of(const Json& object, const char* name) {
  static const Json none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

std::string text_of(const Json& object, const char* name) {
  const Json& text = member_of(object, name);
  return text.is_string() ? text.get<std::string>() : "";
}

RequestFields::RequestFields(const Json& object, std::string path)
    : object_(object), path_(std::move(path)) {
  if (object.is_object()) return;
  throw ApiError::bad_field(path_.empty() ? "body" : path_,
                            "expected an object, not " + kind_of(object));
}

std::string RequestFields::path_of(const std::string& name) const {
  return path_.empty() ? name : path_ + "." + name;
}

const Json* RequestFields::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<double> RequestFields::number(const char* name, double least, double most) const {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  const double given = value->is_number() ? value->get<double>() : std::nan("");
  if (!(given >= least && given <= most)) {
    throw ApiError::bad_field(path_of(name), fmt::format("{}; allowed: a number from {} to {}",
                                                         kind_of(*value), least, most));
  }
  return given;
}

std::optional<int64_t> RequestFields::integer(const char* name, int64_t least, int64_t most) const {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  const bool huge =
      value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  if (huge || !is_whole(*value) || value->get<int64_t>() < least || value->get<int64_t>() > most) {
    throw ApiError::bad_field(
        path_of(name),
        fmt::format("{}; allowed: a whole number from {} to {}", kind_of(*value), least, most));
  }
  return value->get<int64_t>();
}

std::optional<bool> RequestFields::boolean(const char* name) const {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    throw ApiError::bad_field(path_of(name), kind_of(*value) + "; allowed: true, false");
  }
  return value->get<bool>();
}

std::optional<std::string> RequestFields::string(const char* name) const {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    throw ApiError::bad_field(path_of(name), kind_of(*value) + "; allowed: a string");
  }
  return value->get<std::string>();
}

std::vector<std::string> RequestFields::strings(const char* name, size_t max_items) const {
  const Json* const value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  const auto refuse_with = [&](const std::string& given) {
    throw ApiError::bad_field(
        path_of(name),
        fmt::format("{}; allowed: a string, or a list of at most {} of them", given, max_items));
  };
  if (!value->is_array()) refuse_with(kind_of(*value));
  if (value->size() > max_items) refuse_with(kind_of(*value));
  std::vector<std::string> strings;
  for (const Json& item : *value) {
    if (!item.is_string()) refuse_with("a list that contains " + kind_of(item));
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

std::optional<RequestFields> RequestFields::object(const char* name) const {
  const Json* const value = find(name);
  if (value == nullptr) return std::nullopt;
  return RequestFields(*value, path_of(name));
}

void RequestFields::refuse(const char* name, const std::vector<Json>& harmless,
                           const char* why) const {
  const Json* const value = find(name);
  if (value == nullptr) return;
  for (const Json& allowed : harmless) {
    if (*value == allowed) return;
  }
  throw ApiError(400, "invalid_request_error", fmt::format("{}: {}", path_of(name), why),
                 path_of(name), "unsupported_value");
}

}  // namespace fasa::serve
