// Reads the fields of a JSON object. Errors name file, key, the given and the allowed value.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace fasa {

// Maximum nesting of lists and objects. Code that processes JSON, error messages included, recurses
// once per level; published models' files have only a few levels.
inline constexpr int kMaxJsonDepth = 64;

// Json: nlohmann::json or ordered_json. Throws InputError naming file and byte for invalid JSON or
// nesting beyond kMaxJsonDepth. Every untrusted text is parsed here.
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text, const std::string& name);

// A view: the object must outlive it. null counts as absent unless stated otherwise.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string name, std::string prefix = "");

  bool has(const char* key) const;                                    // and is not null
  bool present(const char* key) const;                                // null or not
  int64_t integer(const char* key, int64_t low, int64_t high) const;  // required
  int64_t integer_or(const char* key, int64_t low, int64_t high, int64_t otherwise) const;
  double number(const char* key, double low, double high) const;  // required, low <= it <= high
  double number_or(const char* key, double low, double high, double otherwise) const;
  bool boolean_or(const char* key, bool otherwise) const;
  std::optional<std::string> text(const char* key) const;
  std::string required_text(const char* key) const;
  const nlohmann::json& at(const char* key) const { return object_.at(key); }
  [[noreturn]] void fail(const char* key, std::string_view allowed) const;
  const std::string& name() const { return name_; }
  const std::string& prefix() const { return prefix_; }  // of its keys, in messages

 private:
  const nlohmann::json& object_;
  std::string name_;
  std::string prefix_;
};

}  // namespace fasa
