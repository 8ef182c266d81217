// config.json's quantization_config: the layout of quantised matrices, and which modules are
// quantised.
#pragma once

#include <array>
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
  kMxfp4,  // of experts only
  kFp8,
};

// Matches modules by name or, after "re:", by regular expression.
class ModulePattern {
 public:
  // Throws InputError for an invalid regular expression.
  ModulePattern(const std::string& text, const std::string& where);
  // A name matches the whole module name or whole dot-separated parts of it; an expression matches
  // from the beginning of the name.
  bool matches(const std::string& module) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::shared_ptr<const text::Regex> regex_;
};

struct QuantizationConfig {
  // compressed-tensors: the format of the modules that its targets match.
  struct Group {
    std::vector<ModulePattern> targets;
    int bits = 4;
    bool symmetric = true;
    int64_t group = 0;  // inputs per scale; 0 = the whole row
  };

  QuantLayout layout = QuantLayout::kAwq;
  int64_t group_size = 0;  // AWQ and GPTQ: as Group::group
  // FP8: outputs and inputs on one scale, where a matrix has scales by blocks.
  std::array<int64_t, 2> fp8_blocks = {128, 128};
  std::vector<Group> groups;
  std::vector<ModulePattern> ignored;

  bool ignores(const std::string& module) const;
  // Null if no group targets the module. The target "Linear", a kind of module, matches all of
  // them.
  const Group* group_of(const std::string& module) const;

  // `config`: config.json. nullopt if it has no quantization_config. Throws InputError naming the
  // unsupported setting.
  static std::optional<QuantizationConfig> parse(const nlohmann::json& config,
                                                 const std::string& name);
};

}  // namespace fasa
