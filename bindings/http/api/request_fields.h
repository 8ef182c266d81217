// Reads the fields of a request's JSON object. Errors name the field, the value given and what is
// allowed. null counts as a missing field.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace fasa::serve {

using Json = nlohmann::ordered_json;

class RequestFields {
 public:
  // `path` of the object itself, "" for the body. Throws ApiError if it is no object.
  RequestFields(const Json& object, std::string path);

  // Nothing if the field is missing. Each throws ApiError for another type and for values outside
  // [least, most].
  const Json* find(const char* name) const;
  std::optional<double> number(const char* name, double least, double most) const;
  std::optional<int64_t> integer(const char* name, int64_t least, int64_t most) const;
  std::optional<bool> boolean(const char* name) const;
  std::optional<std::string> string(const char* name) const;
  // A string, or a list of at most `max_items`.
  std::vector<std::string> strings(const char* name, size_t max_items) const;
  std::optional<RequestFields> object(const char* name) const;
  const Json& json() const { return object_; }
  const std::string& path() const { return path_; }
  std::string path_of(const std::string& name) const;

  // 400 for an unsupported field, unless its value is one of `harmless`.
  void refuse(const char* name, const std::vector<Json>& harmless, const char* why) const;

 private:
  const Json& object_;
  std::string path_;
};

// Parses JSON of at most 64 levels. Whole numbers of "messages" and "input" keep their digits
// (large_integers.h). Throws ApiError.
Json parse_body(const std::string& body);
// The arguments of a call, with the digits of their numbers. Nothing if they are no JSON.
std::optional<Json> parse_arguments(const std::string& text);
std::string json_text(const Json& json);  // bytes that are no UTF-8 are replaced
// A member of an object; null where it is missing. Its text; "" where it is none.
const Json& member_of(const Json& object, const char* name);
std::string text_of(const Json& object, const char* name);
// "true", "a list", "the number 7": describes a value in messages.
std::string kind_of(const Json& json);

}  // namespace fasa::serve
