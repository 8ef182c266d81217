// Reads a model's file of defaults, generation_config.json. A fault in it never keeps the model
// from opening: it is logged, and the value or the file is ignored.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fasa {

class DefaultsFile {
 public:
  // A number's range and what it is taken as outside: the value that changes nothing.
  struct Rule {
    const char* key;
    double low, high;
    double otherwise;
    const char* meaning;  // of `otherwise`
    bool integer = false;
  };

  // NaN and Infinity are read, as by Python. A text that is no JSON object counts as empty.
  DefaultsFile(std::string_view json, std::string name);

  // Absent if missing or null. A text of a number counts as the number.
  std::optional<double> number(const Rule& rule) const;
  bool flag(const char* key) const;                 // absent or unusable: false
  std::vector<int32_t> ids(const char* key) const;  // one id or a list; -1: none
  bool has(const char* key) const;

 private:
  void warn(const char* key, const nlohmann::json& value, std::string_view effect) const;

  nlohmann::json object_;
  std::string name_;
};

}  // namespace fasa
