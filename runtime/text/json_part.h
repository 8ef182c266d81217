// A component of tokenizer.json: an object with a "type". Errors name its path.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/io/json_fields.h"
#include "runtime/text/regex.h"

namespace fasa::text {

inline constexpr size_t kMaxSteps = 64;           // in a chain
inline constexpr size_t kMaxContentBytes = 1024;  // of text that a step inserts

// Its name is the file and the path, such as "DIR/tokenizer.json: normalizer".
class JsonPart : public JsonFields {
 public:
  JsonPart(const nlohmann::json& object, std::string place)
      : JsonFields(object, std::move(place)) {}

  std::string type() const { return required_text("type"); }
  std::string character(const char* key) const;  // required: one character, as UTF-8
  // Index in `names` of the value.
  size_t choice(const char* key, std::initializer_list<std::string_view> names) const;
  // {"String": text} or {"Regex": text} as a regular expression.
  Regex pattern(const char* key) const;
  // The text of {"String": text}, null for a {"Regex": ...}.
  const std::string* literal(const char* key) const;
  const nlohmann::json& array(const char* key) const;  // required
  JsonPart object(const char* key) const;              // required

  // Throws: the part's type is not supported. `allowed`: the supported types.
  [[noreturn]] void refuse(std::string_view allowed) const;
};

// The steps of a part in order; nested "Sequence" parts are flattened.
std::vector<JsonPart> steps_of(const nlohmann::json& part, const std::string& place,
                               const char* key);

}  // namespace fasa::text
