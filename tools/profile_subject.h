// The subject of `fasa profile`: turns flags into a decode.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/catalog/model_shape.h"
#include "runtime/llm/model_config.h"
#include "tools/profile_report.h"
#include "tools/prompt.h"

namespace fasa {

struct ProfileOptions {
  std::string model_dir;
  std::string geometry;
  PromptSource prompt;
  int64_t tokens = 131072;
  int sequences = 1;  // decoding together
  int steps = 32;
  int warmup = 48;
  std::string trace_from;  // a model whose generation is recorded as the trace
  std::string trace_file;
  std::string compute = "modelled";
  int weight_bits = 0;

  // Throws UsageError for contradicting flags, naming the allowed values.
  void validate() const;
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
  // Reads the prompt or records the trace. Call it once, after all checks that need neither.
  void prepare();
  // Throws UsageError for a config that does not match the model, before loading anything.
  void check(const Config& config) const;
  ProfileRun open(const std::string& name, Config config) const;

 private:
  ProfileRun open_synthetic(const std::string& name, Config config) const;
  ProfileRun open_model(const std::string& name, Config config) const;
  SelectionTrace record_trace() const;

  const ProfileOptions& flags_;
  std::optional<ModelShape> shape_;
  std::optional<ModelConfig> model_;
  Geometry geometry_;
  std::vector<int32_t> prompt_;
  std::optional<SelectionTrace> trace_;
  std::string trace_name_;
};

// Adds notes that are known after the steps: predictions that fell back, dropped entries.
void add_late_notes(ProfileRun& run);

}  // namespace fasa
