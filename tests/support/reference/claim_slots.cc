#include <algorithm>
#include <span>
#include <vector>

#include "kernels/hot_slots.h"
#include "kernels/replacement.h"
#include "tests/support/reference/kernels.h"

namespace fasa::reference {
namespace {

std::span<const int32_t> predictions_of(const ClaimSlotsParams& params, int64_t index) {
  const int size = params.predictions(index);
  return {params.sets + index * params.selected_capacity, static_cast<size_t>(size)};
}

int claim_slots_head(const ClaimSlotsParams& params, int sequence, int kv_head) {
  const CacheLayout& layout = params.step.layout;
  const SequenceDesc& desc = params.step.sequences[sequence];
  const int64_t index = int64_t{sequence} * layout.kv_heads + kv_head;
  const HotSlots slots =
      HotSlots::of(layout, desc.hot_table, params.step.attending_layer(), kv_head, desc.hot_rows);
  if (desc.mode != StepMode::kDecode || slots.count == 0) return 0;
  int room = params.max_rows;
  for (int slot = 0; slot < slots.count; ++slot) {
    if (slots.positions[slot] >= 0 &&
        slots.last_uses[slot] == predicted_use(params.step_number.read()))
      --room;
  }
  if (room <= 0) return 0;

  std::vector<int32_t> candidates;
  for (const int32_t position : predictions_of(params, index)) {
    const bool is_protected = position < layout.sinks || position >= desc.end() - layout.recent;
    if (position < first_visible(desc.start, params.window)) continue;
    if (position >= desc.start || is_protected) continue;
    if (desc.device_row_block(position / kPageTokens) != nullptr) continue;
    const int32_t* found = std::find(slots.positions, slots.positions + slots.count, position);
    if (found != slots.positions + slots.count) {
      int32_t& last_use = slots.last_uses[found - slots.positions];
      const bool renewed = params.runners_up && is_prediction(last_use);
      last_use = staying(renewed ? predicted_use(params.step_number.read()) : last_use);
    } else if (std::find(candidates.begin(), candidates.end(), position) == candidates.end()) {
      candidates.push_back(position);
    }
  }
  std::vector<int32_t> victims(static_cast<size_t>(slots.count));
  const int wanted = std::min(room, static_cast<int>(candidates.size()));
  const int chosen = choose_victims(slots, params.step_number.read(), wanted, victims.data());
  for (int slot = 0; slot < slots.count; ++slot) {
    if (slots.positions[slot] >= 0) {
      slots.last_uses[slot] = without_staying(slots.last_uses[slot]);
    }
  }
  for (int i = 0; i < chosen; ++i) {
    const int32_t slot = victims[static_cast<size_t>(i)];
    const int32_t position =
        candidates[params.runners_up
                       ? static_cast<size_t>(i)
                       : static_cast<size_t>(i) * candidates.size() / static_cast<size_t>(chosen)];
    slots.positions[slot] = position;
    slots.last_uses[slot] = predicted_use(params.step_number.read());
    params.fetches[index * params.max_rows + i] = {
        desc.row_blocks[position / kPageTokens] +
            layout.row_offset(params.step.layer, kv_head, position % kPageTokens),
        desc.hot + layout.hot_offset(params.step.attending_layer(), kv_head, slot, slots.count)};
  }
  return chosen;
}

}  // namespace

void claim_slots(const ClaimSlotsParams& params) {
  for (int sequence = 0; sequence < params.step.count; ++sequence) {
    for (int kv_head = 0; kv_head < params.step.layout.kv_heads; ++kv_head) {
      const int fetched = claim_slots_head(params, sequence, kv_head);
      params.fetch_counts[int64_t{sequence} * params.step.layout.kv_heads + kv_head] = fetched;
      params.counters->prefetched += static_cast<uint64_t>(fetched);
    }
  }
}

}  // namespace fasa::reference
