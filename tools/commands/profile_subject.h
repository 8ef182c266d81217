// The subject of `fasa profile`: turns flags into a decode.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/catalog/model_shape.h"
#include "runtime/llm/config/model_config.h"
#include "tools/commands/emulated_decode.h"
#include "tools/flags/prompt.h"
#include "tools/report/profile_report.h"

namespace fasa {

struct ProfileOptions {
  std::string model_dir;
  std::string geometry;
  PromptSource prompt;
  int64_t tokens = 131072;
  int sequences = 1;  // decoding together
  int step_tokens = 1;
  int steps = 32;
  std::optional<int> warmup;  // none: until hot rows are warm
  std::string trace_file;
  std::optional<int> weight_bits;  // with --geometry; none: kUsualWeightBits

  // Throws UsageError for contradicting flags, naming the allowed values.
  void validate() const;
  int64_t max_steps() const { return int64_t{warmup.value_or(kMaxWarmup)} + steps; }
  bool synthetic() const { return !geometry.empty(); }
};

// Opens decodes of one subject under different configs.
class ProfileSubject {
 public:
  // Reads the named inputs: geometry or config.json, prompt, trace. Throws UsageError, InputError.
  explicit ProfileSubject(const ProfileOptions& flags);

  // The command's defaults, below file, environment and flags.
  Config defaults() const;
  const Geometry& geometry() const { return geometry_; }
  void describe(ProfileReport& report) const;
  // Reads the prompt of a model. Call it once, after all checks that do not need it.
  void prepare();
  // Throws UsageError for a config that does not match the model, before loading anything.
  void check(const Config& config);
  // May be called in any number, one after the other.
  ProfileRun open(const std::string& name, Config config) const;
  // Rows of the largest layer's set.
  int largest_set(const Config& config) const;
  // The device_memory of the command's config, before weights were subtracted.
  std::optional<uint64_t> given_device_memory() const { return given_device_memory_; }

 private:
  ProfileRun open_synthetic(const std::string& name, Config config) const;
  ProfileRun open_model(const std::string& name, Config config) const;

  const ProfileOptions& flags_;
  std::optional<ModelShape> shape_;
  std::optional<ModelConfig> model_;
  Geometry geometry_;
  std::vector<int32_t> prompt_;
  std::optional<SelectionTrace> trace_;
  std::string trace_name_;
  std::optional<uint64_t> given_device_memory_;
};

// Adds notes that are known after the steps: predictions that fell back, dropped entries.
void add_late_notes(ProfileRun& run);

}  // namespace fasa
