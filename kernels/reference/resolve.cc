#include <algorithm>

#include "kernels/reference/kernels.h"

namespace fasa::reference {
namespace {

// One KV head of one sequence, by plain searches.
struct Head {
  const ResolveParams& params;
  const SequenceDesc& desc;
  int kv_head;
  int64_t index;  // sequence * kv_heads + kv_head
  int32_t* positions;
  int32_t* stamps;
  int hot_rows;

  bool resident(int position) const {
    const CacheLayout& layout = params.step.layout;
    return position < layout.sinks || position >= desc.end() - layout.recent;
  }
  int find(int position) const {
    for (int slot = 0; slot < hot_rows; ++slot) {
      if (positions[slot] == position) return slot;
    }
    return -1;
  }
  // The next slot to give away, or -1.
  int victim() const {
    int best = -1;
    for (int slot = 0; slot < hot_rows; ++slot) {
      if (positions[slot] < 0) return slot;
      if (stamps[slot] == params.stamp) continue;
      if (best < 0 || stamps[slot] < stamps[best]) best = slot;
    }
    return best;
  }
  std::byte* hot_row(int slot) const {
    return desc.hot + params.step.layout.hot_offset(params.step.layer, kv_head, slot);
  }
  const std::byte* block_row(int position) const {
    return desc.row_blocks[position / kPageTokens] +
           params.step.layout.row_offset(params.step.layer, kv_head, position % kPageTokens);
  }
};

void fetch(const Head& head, int position, int entry, std::byte* staging) {
  const ResolveParams& params = head.params;
  const int64_t wave = params.end - params.begin;
  std::byte* destination = staging;
  const int slot = head.victim();
  if (slot >= 0) {
    head.positions[slot] = position;
    head.stamps[slot] = params.stamp;
    destination = head.hot_row(slot);
  }
  params.fetches[head.index * wave + params.fetch_counts[head.index]++] = {head.block_row(position),
                                                                           destination};
  params.rows[head.index * wave + entry] = destination;
  const int64_t tiles = (wave + kTileTokens - 1) / kTileTokens;
  params.tile_ready[head.index * tiles + entry / kTileTokens] = 0;
  ++params.counters->misses;
}

void resolve_head(const Head& head, int size) {
  const ResolveParams& params = head.params;
  const CacheLayout& layout = params.step.layout;
  const int64_t wave = params.end - params.begin;
  const int32_t* set = params.sets + head.index * params.set_capacity;
  for (int i = params.begin; i < size; ++i) {  // hits of the whole rest are safe from here on
    const int slot = head.resident(set[i]) ? -1 : head.find(set[i]);
    if (slot >= 0) head.stamps[slot] = params.stamp;
  }
  for (int i = params.begin; i < std::min(size, params.end); ++i) {
    const int entry = i - params.begin;
    const std::byte*& row = params.rows[head.index * wave + entry];
    const bool resident = head.resident(set[i]);
    if (resident) ++params.counters->resident;
    if (params.rows_on_device) {
      if (!resident) ++params.counters->hits;
      row = head.block_row(set[i]);
    } else if (resident) {
      row = head.desc.residents +
            layout.resident_offset(params.step.layer, head.kv_head, layout.resident_slot(set[i]));
    } else if (const int slot = head.find(set[i]); slot >= 0) {
      ++params.counters->hits;
      row = head.hot_row(slot);
    } else {
      fetch(head, set[i], entry, params.staging + (head.index * wave + entry) * layout.row.bytes());
    }
  }
}

}  // namespace

void resolve(const ResolveParams& params) {
  const CacheLayout& layout = params.step.layout;
  const int64_t tiles = (params.end - params.begin + kTileTokens - 1) / kTileTokens;
  for (int sequence = 0; sequence < params.step.count; ++sequence) {
    const SequenceDesc& desc = params.step.sequences[sequence];
    for (int kv_head = 0; kv_head < layout.kv_heads; ++kv_head) {
      const int64_t index = int64_t{sequence} * layout.kv_heads + kv_head;
      const bool hot = !params.rows_on_device && desc.hot != nullptr && layout.hot_rows > 0;
      int32_t* table =
          hot ? desc.hot_table + layout.hot_table_index(params.step.layer, kv_head) : nullptr;
      const Head head = {params,
                         desc,
                         kv_head,
                         index,
                         table,
                         hot ? table + layout.hot_rows : nullptr,
                         hot ? layout.hot_rows : 0};
      params.fetch_counts[index] = 0;
      std::fill_n(params.tile_ready + index * tiles, tiles, uint8_t{1});
      const bool decode = desc.mode == StepMode::kDecode;
      resolve_head(head, decode ? params.set_sizes[index] : 0);
    }
  }
}

}  // namespace fasa::reference
