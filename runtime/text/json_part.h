// A component of tokenizer.json: an object with a "type". Errors name its path.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/regex.h"

namespace fasa::text {

inline constexpr size_t kMaxSteps = 64;           // in a chain
inline constexpr size_t kMaxContentBytes = 1024;  // of text that a step inserts

// A view: the object must outlive it.
class JsonPart {
 public:
  // `place`: file and path, such as "DIR/tokenizer.json: normalizer". Throws InputError if it is
  // not an object.
  JsonPart(const nlohmann::json& object, std::string place);

  const std::string& place() const { return place_; }
  std::string type() const { return text("type"); }
  bool has(const char* key) const;  // and is not null
  bool boolean(const char* key, bool otherwise) const;
  std::string text(const char* key) const;  // required
  std::string text_or(const char* key, std::string otherwise) const;
  int64_t integer(const char* key, int64_t low, int64_t high) const;  // required
  std::string character(const char* key) const;  // required: one character, as UTF-8
  // Index in `names` of the value.
  size_t choice(const char* key, std::initializer_list<std::string_view> names) const;
  // {"String": text} or {"Regex": text} as a regular expression.
  Regex pattern(const char* key) const;
  // The text of {"String": text}, null for a {"Regex": ...}.
  const std::string* literal(const char* key) const;
  const nlohmann::json& array(const char* key) const;  // required
  const nlohmann::json& json_at(const char* key) const { return object_.at(key); }
  JsonPart object(const char* key) const;  // required

  [[noreturn]] void fail(const char* key, std::string_view allowed) const;
  // Throws: the part's type is not supported. `allowed`: the supported types.
  [[noreturn]] void refuse(std::string_view allowed) const;

 private:
  const nlohmann::json& object_;
  std::string place_;
};

// The steps of a part in order; nested "Sequence" parts are flattened.
std::vector<JsonPart> steps_of(const nlohmann::json& part, const std::string& place,
                               const char* key);

}  // namespace fasa::text
