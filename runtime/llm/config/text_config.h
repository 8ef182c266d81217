// The text model's part of a config.json, with the defaults of transformers' config classes that
// published files rely on. Models of text and images keep it in text_config.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace fasa {

class TextConfig {
 public:
  // `whole`: the file. Throws InputError naming file and key.
  TextConfig(const nlohmann::json& whole, const std::string& name);

  const nlohmann::json& object() const { return text_; }
  const std::string& prefix() const { return prefix_; }  // of its keys

 private:
  nlohmann::json text_;
  std::string prefix_;
};

}  // namespace fasa
