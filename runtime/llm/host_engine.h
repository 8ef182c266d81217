// A model's own work as host code that streams run (Device::launch).
#pragma once

#include <optional>
#include <string>

#include "runtime/llm/layer_engine.h"

namespace fasa {

class HostEngine final : public LayerEngine {
 public:
  explicit HostEngine(const EngineParts& parts) : parts_(parts) {}

  void reserve(const Activations&) override {}
  void stage(const StepShape&) override {}
  void begin(const StepShape& step) override;
  void to_attention(int layer) override;
  void query_of(int layer, std::byte* query, OperationTag tag) override;
  void logits() override;

 private:
  const EngineParts parts_;
  std::optional<LayerWork> work_;  // of the step under way
  const StepShape* step_ = nullptr;
};

// What oneDNN uses for its projections, for people: "avx512_core_bf16 (AMX is announced but does
// not work)".
std::string host_engine_note();

}  // namespace fasa
