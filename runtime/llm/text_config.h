// The text model's part of a config.json. Models of text and images keep it in text_config.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace fasa {

class TextConfig {
 public:
  // `whole`: the file, which must outlive this. Throws InputError naming file and key.
  TextConfig(const nlohmann::json& whole, const std::string& name);

  const nlohmann::json& object() const { return wrapped() ? text_ : whole_; }
  std::string prefix() const { return wrapped() ? "text_config." : ""; }  // of its keys

 private:
  bool wrapped() const { return !text_.is_null(); }

  const nlohmann::json& whole_;
  nlohmann::json text_;
};

}  // namespace fasa
