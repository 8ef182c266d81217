#include "runtime/llm/layer_engine.h"

#include <fmt/format.h>

#include "runtime/llm/host_engine.h"
#include "runtime/llm/kernel_engine.h"

namespace fasa {

std::unique_ptr<LayerEngine> make_layer_engine(const EngineParts& parts) {
  if (parts.device.model_kernels() != nullptr) return std::make_unique<KernelEngine>(parts);
  return std::make_unique<HostEngine>(parts);
}

std::string kernel_obstacle(const ModelConfig& config) {
  if (config.has_mla()) {
    return fmt::format("models of the family {} (latent attention)", config.model_type);
  }
  if (!config.alibi_slopes.empty()) {
    return fmt::format("models of the family {} (ALiBi)", config.model_type);
  }
  return "";
}

}  // namespace fasa
