#include <algorithm>
#include <vector>

#include "kernels/hot_slots.h"
#include "kernels/replacement.h"
#include "tests/support/reference/kernels.h"

namespace fasa::reference {
namespace {

// One KV head of one sequence; positions are found by linear searches.
struct Head {
  const ResolveParams& params;
  const SequenceDesc& desc;
  int kv_head;
  int64_t index;  // sequence * kv_heads + kv_head
  HotSlots slots;

  bool is_protected(int position) const {
    const CacheLayout& layout = params.step.layout;
    const int before = desc.end() - desc.earlier - layout.recent;
    return position < layout.sinks || position >= before;
  }
  int find(int position) const {
    for (int slot = 0; slot < slots.count; ++slot) {
      if (slots.positions[slot] == position) return slot;
    }
    return -1;
  }
  int64_t tiles() const { return (params.end - params.begin + kTileTokens - 1) / kTileTokens; }
  std::byte* hot_row(int slot) const {
    return desc.hot +
           params.step.layout.hot_offset(params.step.attending_layer(), kv_head, slot, slots.count);
  }
  // Address in the page's device copy, or null.
  const std::byte* device_row(int position) const {
    const std::byte* block = desc.device_row_block(position / kPageTokens);
    if (block == nullptr) return nullptr;
    return block +
           params.step.layout.row_offset(params.step.layer, kv_head, position % kPageTokens);
  }
  const std::byte* block_row(int position) const {
    const CacheLayout& layout = params.step.layout;
    return desc.row_blocks[position / kPageTokens] +
           layout.row_offset(params.step.layer, kv_head, position % kPageTokens);
  }
};

// Marks the hits of set entries from `begin` on as used, so that no fetch evicts them.
void mark_hits(const Head& head, int size) {
  const ResolveParams& params = head.params;
  const int32_t* set = params.sets + head.index * params.selected_capacity;
  for (int i = params.begin; i < size; ++i) {
    const bool here = head.is_protected(set[i]) || head.device_row(set[i]) != nullptr;
    const int slot = here ? -1 : head.find(set[i]);
    if (slot < 0) continue;
    int32_t& last_use = head.slots.last_uses[slot];
    if (is_prediction(last_use)) ++params.counters->prefetched_used;
    // Predicted by this step, or fetched in this wave for an earlier token.
    const bool in_flight = step_of(last_use) == params.step_number.read() && params.begin == 0;
    const int64_t tile = head.index * head.tiles() + (i - params.begin) / kTileTokens;
    if (in_flight && i < params.end) params.tile_ready[tile] = 0;
    last_use = slot_use(params.step_number.read());
  }
}

// `misses`: entries of the wave.
void fetch(const Head& head, const std::vector<int>& misses) {
  const ResolveParams& params = head.params;
  const int64_t wave = params.end - params.begin;
  const int64_t row_bytes = params.step.layout.row.bytes();
  std::vector<int32_t> victims(static_cast<size_t>(head.slots.count));
  const int chosen = choose_victims(head.slots, params.step_number.read(),
                                    static_cast<int>(misses.size()), victims.data());
  for (size_t m = 0; m < misses.size(); ++m) {
    const int entry = misses[m];
    const int position = params.sets[head.index * params.selected_capacity + params.begin + entry];
    std::byte* destination = nullptr;
    if (static_cast<int>(m) < chosen) {
      const int32_t slot = victims[m];
      head.slots.positions[slot] = position;
      head.slots.last_uses[slot] = slot_use(params.step_number.read());
      destination = head.hot_row(slot);
    } else {
      destination = params.fetch_buffer + (head.index * wave + entry) * row_bytes;
    }
    params.fetches[head.index * wave + static_cast<int64_t>(m)] = {head.block_row(position),
                                                                   destination};
    params.rows[head.index * wave + entry] = destination;
    params.tile_ready[head.index * head.tiles() + entry / kTileTokens] = 0;
  }
  params.fetch_counts[head.index] = static_cast<int32_t>(misses.size());
  params.counters->misses += misses.size();
}

void resolve_head(const Head& head, int size) {
  const ResolveParams& params = head.params;
  const CacheLayout& layout = params.step.layout;
  const int64_t wave = params.end - params.begin;
  const int32_t* set = params.sets + head.index * params.selected_capacity;
  mark_hits(head, size);
  std::vector<int> misses;
  for (int i = params.begin; i < std::min(size, params.end); ++i) {
    const int entry = i - params.begin;
    const std::byte*& row = params.rows[head.index * wave + entry];
    const bool protects = head.is_protected(set[i]);
    if (protects) ++params.counters->protected_rows;
    if (head.desc.access == RowAccess::kLocal) {
      if (!protects) ++params.counters->hits;
      row = head.block_row(set[i]);
    } else if (protects) {
      row = head.desc.protected_rows +
            layout.protected_offset(params.step.layer, head.kv_head, layout.protected_slot(set[i]));
    } else if (const std::byte* device = head.device_row(set[i]); device != nullptr) {
      ++params.counters->hits;
      row = device;
    } else if (const int slot = head.find(set[i]); slot >= 0) {
      ++params.counters->hits;
      row = head.hot_row(slot);
    } else {
      misses.push_back(entry);
    }
  }
  if (!misses.empty()) fetch(head, misses);
}

}  // namespace

void resolve(const ResolveParams& params) {
  const CacheLayout& layout = params.step.layout;
  const int64_t tiles = (params.end - params.begin + kTileTokens - 1) / kTileTokens;
  for (int sequence = 0; sequence < params.step.count; ++sequence) {
    const SequenceDesc& desc = params.step.sequences[sequence];
    for (int i = 0; i < params.step.head_count(); ++i) {
      const int kv_head = params.step.first_head() + i;
      const int64_t index = int64_t{sequence} * layout.kv_heads + kv_head;
      int32_t* table = desc.access == RowAccess::kLocal ? nullptr : desc.hot_table;
      const Head head = {
          params, desc, kv_head, index,
          HotSlots::of(layout, table, params.step.attending_layer(), kv_head, desc.hot_rows)};
      params.fetch_counts[index] = 0;
      std::fill_n(params.tile_ready + index * tiles, tiles, uint8_t{1});
      const bool decode = desc.mode == StepMode::kDecode;
      resolve_head(head, decode ? params.selected_sizes[index] : 0);
    }
  }
}

}  // namespace fasa::reference
