// Reads the fields of a JSON object with errors that name file, key, what was given and what is
// allowed.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace fasa {

// Lists and objects within each other. What works through JSON calls itself once a level (the
// wording of errors too), and no file of ours or of a published model has more than a few.
inline constexpr int kMaxJsonDepth = 64;

// Json: nlohmann::json or ordered_json. Throws InputError naming file and byte for what is no JSON
// or deeper than kMaxJsonDepth. Every text from outside comes in here.
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text, const std::string& name);

// A view: the object outlives it. null counts as absent unless said otherwise.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string name, std::string prefix = "");

  bool has(const char* key) const;                                    // and not null
  bool present(const char* key) const;                                // null or not
  int64_t integer(const char* key, int64_t low, int64_t high) const;  // required
  int64_t integer_or(const char* key, int64_t low, int64_t high, int64_t otherwise) const;
  double number(const char* key, double low, double high) const;  // required, low <= it <= high
  double number_or(const char* key, double low, double high, double otherwise) const;
  bool boolean_or(const char* key, bool otherwise) const;
  std::optional<std::string> text(const char* key) const;
  const nlohmann::json& at(const char* key) const { return object_.at(key); }
  [[noreturn]] void fail(const char* key, std::string_view allowed) const;

 private:
  const nlohmann::json& object_;
  std::string name_;
  std::string prefix_;
};

}  // namespace fasa
