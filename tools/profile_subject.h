// What `fasa profile` profiles: flags turned into a decode.
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
  int sequences = 1;  // that decode together
  int steps = 32;
  int warmup = 48;
  std::string trace_from;  // a model that generates to make the trace
  std::string trace_file;
  std::string compute = "modelled";
  int weight_bits = 0;

  // Throws UsageError: what contradicts what, and what is allowed.
  void validate() const;
  bool synthetic() const { return !geometry.empty(); }
};

// Opens decodes of one subject under different configs.
class ProfileSubject {
 public:
  // Reads what it names: geometry or config.json, prompt, trace. Throws UsageError, InputError.
  explicit ProfileSubject(const ProfileOptions& flags);

  // What the command takes where no source says otherwise.
  Config defaults() const;
  const Geometry& geometry() const { return geometry_; }
  void describe(ProfileReport& report) const;
  // Reads the prompt or makes the trace, once and after all checks that need neither.
  void prepare();
  // Throws UsageError for a config that does not fit, before anything is loaded.
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

// What has to be said after the steps: predictions that fell back, entries that were dropped.
void add_late_notes(ProfileRun& run);

}  // namespace fasa
