#include "runtime/llm/layer_engine.h"

#include "runtime/llm/host_engine.h"
#include "runtime/llm/kernel_engine.h"

namespace fasa {

std::unique_ptr<LayerEngine> make_layer_engine(const EngineParts& parts) {
  if (parts.device.traits().model_calls) return std::make_unique<KernelEngine>(parts);
  return std::make_unique<HostEngine>(parts);
}

}  // namespace fasa
