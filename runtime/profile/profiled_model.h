// A model's greedy generation, recorded and profiled.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/llm/compute/model.h"
#include "runtime/profile/profiled_decode.h"
#include "runtime/profile/selection_observer.h"

namespace fasa {

struct ProfiledModelOptions {
  std::string dir;
  Config config;
  std::vector<int32_t> prompt;
  int64_t max_steps = 32;
  int prefill_chunk = 512;
  // Key dimensions of the slices (tools/flags/slice_choice.h).
  std::function<std::vector<int16_t>(Model&)> slice_dims;
  std::function<void(int64_t done, int64_t total)> on_prefill = {};
  std::function<std::unique_ptr<Device>()> open = {};  // none: the config's device
};

class ProfiledModel final : public ProfiledDecode {
 public:
  // Loads the model, reserves memory and runs the prompt. Steps continue after an end of sequence.
  // Throws UsageError, InputError, BudgetError.
  ProfiledModel(const ProfiledModelOptions& settings, const ModelConfig& model);
  ~ProfiledModel() override;

  Device& device() override { return device_; }
  KvMemory memory() const override { return runtime_->memory(); }
  int64_t context() const override { return runtime_->length(sequence_); }

 private:
  Taken run_step() override;
  void prefill(const ProfiledModelOptions& settings);

  const std::unique_ptr<Device> inner_;
  SelectionObserver device_;
  Model model_;
  std::unique_ptr<Runtime> runtime_;
  SequenceId sequence_{};
  Event begun_;
  Event ended_;
  int32_t token_ = 0;
};

}  // namespace fasa
