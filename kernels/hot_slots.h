// The table of one head's hot rows: the row that a slot holds and when it was last used.
//
//   position  >= 0: of the row that the slot holds, or will hold once its fetch has arrived
//             -1: empty
//   last use  the step that last used the slot, how often it was used, and whether its row was
//             fetched on a prediction that no step has used yet
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/layout.h"

namespace fasa {

// One sequence, layer and KV head. `hand` belongs to the clock replacement.
struct HotSlots {
  int32_t* positions = nullptr;
  int32_t* last_uses = nullptr;
  int32_t* hand = nullptr;
  int count = 0;

  // `layer`: StepParams::attending_layer(). `slots`: of each head in the table.
  static constexpr HotSlots of(const CacheLayout& layout, int32_t* hot_table, int layer,
                               int kv_head, int slots) {
    if (hot_table == nullptr || slots == 0) return {};
    int32_t* table = hot_table + layout.hot_table_index(layer, kv_head, slots);
    return {table, table + slots, table + 2 * int64_t{slots}, slots};
  }
};

// The word of a last use: step (27 bits), uses (3 bits), predicted (1 bit).
inline constexpr int32_t kMaxSteps = (1 << 27) - 1;
inline constexpr int32_t kMaxUses = 7;
constexpr int32_t slot_use(int32_t step, int32_t uses) { return step << 4 | uses << 1; }
constexpr int32_t predicted_use(int32_t step) { return step << 4 | 1; }
constexpr int32_t step_of(int32_t last_use) { return last_use >> 4; }
constexpr int32_t uses_of(int32_t last_use) { return last_use >> 1 & kMaxUses; }
constexpr bool is_prediction(int32_t last_use) { return (last_use & 1) != 0; }

// The last use of a slot once `step` has used its row. The count of uses decays: it is halved for
// every 16 steps in which the row was not used, three times at most.
constexpr int32_t renewed_use(int32_t last_use, int32_t step) {
  if (step_of(last_use) == step && !is_prediction(last_use)) return last_use;
  const int32_t idle = std::min((step - step_of(last_use)) / 16, 3);
  return slot_use(step, std::min((uses_of(last_use) >> idle) + 1, kMaxUses));
}

}  // namespace fasa
