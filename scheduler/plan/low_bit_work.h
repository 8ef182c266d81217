// Bytes that a layer's low-bit set costs, as the kernels report them.
#pragma once

#include "kernels/kernel_work.h"
#include "scheduler/step_settings.h"

namespace fasa {

struct LowBitWork {
  uint64_t select = 0;  // one KV head
  uint64_t attend = 0;
};

inline LowBitWork low_bit_work(const StepSettings& settings, int layer, int32_t visible) {
  const CacheLayout& layout = settings.layout;
  if (settings.low_bit_pages(layer, visible) == 0) {
    return {.attend = low_bit_bytes(layout, settings.low_bit_tokens(layer, visible))};
  }
  const uint64_t scores = page_scores_bytes(layout, pages_of(visible));
  return {.select = scores, .attend = scores + value_pages_bytes(layout, 0, visible)};
}

}  // namespace fasa
