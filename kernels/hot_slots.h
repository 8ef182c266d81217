// The table of one head's hot rows: the row that a slot holds and when it was last used.
//
//   position  >= 0: of the row that the slot holds, or will hold once its fetch has arrived
//             -1: empty
//   last use  the step that last used the slot, and whether its row was fetched on a prediction
//             that no step has used yet
#pragma once

#include <cstdint>

#include "kernels/layout.h"

namespace fasa {

// One sequence, layer and KV head.
struct HotSlots {
  int32_t* positions = nullptr;
  int32_t* last_uses = nullptr;
  int count = 0;

  // `layer`: StepParams::attending_layer(). `slots`: of each head in the table.
  static constexpr HotSlots of(const CacheLayout& layout, int32_t* hot_table, int layer,
                               int kv_head, int slots) {
    if (hot_table == nullptr || slots == 0) return {};
    int32_t* table = hot_table + layout.hot_table_index(layer, kv_head, slots);
    return {table, table + slots, slots};
  }
};

// The word of a last use: stays (sign bit, in a claim alone), step (30 bits), predicted (1 bit).
inline constexpr int32_t kMaxSteps = (1 << 30) - 1;
constexpr int32_t slot_use(int32_t step) { return step << 1; }
constexpr int32_t predicted_use(int32_t step) { return step << 1 | 1; }
constexpr int32_t staying(int32_t last_use) { return last_use | INT32_MIN; }
constexpr int32_t without_staying(int32_t last_use) { return last_use & INT32_MAX; }
constexpr bool stays(int32_t last_use) { return last_use < 0; }
constexpr int32_t step_of(int32_t last_use) { return without_staying(last_use) >> 1; }
constexpr bool is_prediction(int32_t last_use) { return (last_use & 1) != 0; }

}  // namespace fasa
