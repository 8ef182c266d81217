#include "kernels/cpu/attend_low_bit.h"

#include <algorithm>
#include <vector>

#include "runtime/base/dtype.h"

namespace fasa::cpu {
LowBitTask LowBitTiles::task_for() const {
  LowBitTask task;
  task.group = layout_.gqa_group;
  task.value_dim = layout_.values.dims;
  task.score_stride = params_.low_bit.capacity;
  task.scale = params_.scale;
  return task;
}

void LowBitTiles::find(int index, int tile, LowBitTile* found) const {
  const SequenceDesc& sequence = params_.step.sequences[index / layout_.kv_heads];
  const int layer = params_.step.layer;
  const int kv_head = index % layout_.kv_heads;
  const SliceFormat& format = layout_.values;
  const int64_t base_offset = layout_.value_base_offset(layer, kv_head);
  const int64_t offset = layout_.value_offset(layer, kv_head);
  const int64_t code_bytes = format.code_bytes();
  const int64_t token_bytes = int64_t{format.groups()} * 4;
  const int64_t parameter_bytes = int64_t{format.padded_dims()} * 2;
  const int32_t* positions = positions_of(index, tile);
  found->tokens = std::min(kTileTokens, size(index) - tile * kTileTokens);
  for (int t = 0; t < found->tokens; ++t) {
    const int page = positions[t] / kPageTokens;
    const int slot = positions[t] % kPageTokens;
    if (page >= sequence.sealed_pages()) {
      found->values[t] = read_tail(sequence.tail + layout_.value_tail_offset(layer, kv_head), slot,
                                   tile % 2 * kTileTokens + t);
      continue;
    }
    const std::byte* block = sequence.slice_blocks[page];
    const auto* codes = reinterpret_cast<const unsigned char*>(block + offset);
    found->codes[t] = codes + format.word_at(0, slot) * int64_t{4};
    found->parameters[t] = codes + code_bytes;
    found->bases[t] = reinterpret_cast<const float*>(block + base_offset);
    found->values[t] = nullptr;
    __builtin_prefetch(found->bases[t]);
    __builtin_prefetch(found->codes[t]);
    __builtin_prefetch(found->codes[t] + token_bytes - 1);
    for (int64_t at = 0; at < parameter_bytes; at += kAlignment) {
      __builtin_prefetch(found->parameters[t] + at);
    }
  }
}

const float* LowBitTiles::read_tail(const std::byte* tail, int slot, int place) const {
  const int dims = layout_.values.dims;
  const auto width = static_cast<size_t>(align_up(dims, kPadFloats));
  thread_local std::vector<float> all;  // of two tiles; grows only
  if (all.size() < 2 * kTileTokens * width) all.resize(2 * kTileTokens * width);
  float* values = all.data() + static_cast<size_t>(place) * width;
  const auto* stored = reinterpret_cast<const uint16_t*>(tail);  // [dims / 2][64 tokens][2], bf16
  for (int d = 0; d < dims; ++d) {
    values[d] = f32_from_bf16(stored[(d / 2 * kPageTokens + slot) * 2 + d % 2]);
  }
  return values;
}

void LowBitTiles::set_scores(int index, int tile, LowBitTask* task) const {
  const LowBitSet& low_bit = params_.low_bit;
  task->scores =
      low_bit.scores + int64_t{index} * layout_.gqa_group * low_bit.capacity + tile * kTileTokens;
}

void LowBitTiles::compute_tile(const LowBitTask& task) const {
  bodies_.attend_low_bit[code_width_index(slice_bits(layout_.values.dtype))](task);
}

}  // namespace fasa::cpu
