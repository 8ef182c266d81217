#include "runtime/llm/generation/auto_chunk.h"

#include <algorithm>

namespace fasa {

int automatic_chunk(const Model& model, const Runtime& runtime, int64_t context, int64_t prompt,
                    int most) {
  const Device& device = model.device();
  if (device.unified()) return kMinPrefillChunk;
  const MemoryUse use = device.memory(MemorySpace::kDevice);
  const uint64_t free = use.limit_bytes - std::min(use.limit_bytes, use.used_bytes);
  const auto fits = [&](int chunk) {
    const uint64_t activations = model.activation_bytes(chunk);
    return activations <= free &&
           runtime.estimate_memory(context, chunk).device_needed() <= free - activations;
  };
  return largest_prefill_chunk(prompt, fits, most);
}

}  // namespace fasa
