// What config.json's quantization_config says: the layout of quantised matrices and which modules
// have them.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/text/regex.h"

namespace fasa {

enum class QuantLayout : uint8_t {
  kAwq,
  kGptqV1,
  kGptqV2,
  kPackQuantized,  // compressed-tensors: integers
  kPackedMxfp4,    // compressed-tensors: MXFP4
  kBitsAndBytes,
  kMxfp4,  // of experts
};

// A name or, after "re:", a regular expression, of modules.
class ModulePattern {
 public:
  // Throws InputError for a regular expression that can't be one.
  ModulePattern(const std::string& text, const std::string& where);
  // A name is the module's as a whole, or parts of it between dots; an expression matches from the
  // name's beginning.
  bool matches(const std::string& module) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::shared_ptr<const text::Regex> regex_;
};

struct QuantizationConfig {
  // compressed-tensors: quantization of the modules that a target names.
  struct Group {
    std::vector<ModulePattern> targets;
    int bits = 4;
    bool symmetric = true;
    int64_t group = 0;  // inputs on one scale; 0 = all of a row
  };

  QuantLayout layout = QuantLayout::kAwq;
  int64_t group_size = 0;  // of AWQ and GPTQ, as Group's group
  std::vector<Group> groups;
  std::vector<ModulePattern> ignored;

  bool ignores(const std::string& module) const;
  // Null where no group has it. A target that is a kind of module, "Linear", has all of them.
  const Group* group_of(const std::string& module) const;

  // `config`: config.json. nullopt where it has no quantization_config. Throws InputError naming
  // what is not read.
  static std::optional<QuantizationConfig> parse(const nlohmann::json& config,
                                                 const std::string& name);
};

}  // namespace fasa
