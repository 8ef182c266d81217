#include "kernels/cpu/attend_near.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/base/dtype.h"

namespace fasa::cpu {
namespace {

// A token's values out of a tail page, [dims / 2][64 tokens][2] in bf16.
void read_tail(const SliceFormat& format, const std::byte* tail, int slot, float* out) {
  const auto* values = reinterpret_cast<const uint16_t*>(tail);
  for (int d = 0; d < format.dims; ++d) {
    out[d] = f32_from_bf16(values[(d / 2 * kPageTokens + slot) * 2 + d % 2]);
  }
}

}  // namespace

NearTiles::Page NearTiles::page_at(int index, int page) const {
  const SequenceDesc& sequence = params_.step.sequences[index / layout_.kv_heads];
  const int layer = params_.step.layer;
  const int kv_head = index % layout_.kv_heads;
  if (page >= sequence.sealed_pages()) {
    return {nullptr, sequence.tail + layout_.value_tail_offset(layer, kv_head), 1};
  }
  const std::byte* block = sequence.slice_blocks[page];
  float base = 1;
  std::memcpy(&base, block + layout_.value_base_offset(layer, kv_head), sizeof(base));
  return {block + layout_.value_offset(layer, kv_head), nullptr, base};
}

void NearTiles::prefetch(int index, int tile) const {
  const SequenceDesc& sequence = params_.step.sequences[index / layout_.kv_heads];
  const SliceFormat& format = layout_.values;
  const int64_t head_value = layout_.value_offset(params_.step.layer, index % layout_.kv_heads);
  const int64_t head_base = layout_.value_base_offset(params_.step.layer, index % layout_.kv_heads);
  const int count = std::min(kTileTokens, size(index) - tile * kTileTokens);
  const int32_t* positions = positions_of(index, tile);
  for (int t = 0; t < count; ++t) {
    const int page = positions[t] / kPageTokens;
    if (page >= sequence.sealed_pages()) return;  // the newest, last
    const std::byte* block = sequence.slice_blocks[page];
    __builtin_prefetch(block + head_base);
    const std::byte* codes = block + head_value;
    const std::byte* token = codes + format.word_at(0, positions[t] % kPageTokens) * int64_t{4};
    __builtin_prefetch(token);
    __builtin_prefetch(token + format.groups() * 4 - 1);
    const std::byte* parameters = codes + format.code_bytes();
    for (int64_t at = 0; at < format.padded_dims() * int64_t{2}; at += kAlignment) {
      __builtin_prefetch(parameters + at);
    }
  }
}

int NearTiles::compute(int index, int tile, float* partials, int64_t stride) const {
  const NearSet& near = params_.near;
  const SliceFormat& format = layout_.values;
  const int first = tile * kTileTokens;
  const int32_t* positions = positions_of(index, tile);
  NearTask task;
  task.group = layout_.group;
  task.value_dim = format.dims;
  task.tokens = std::min(kTileTokens, size(index) - first);
  task.scores = near.scores + int64_t{index} * layout_.group * near.capacity + first;
  task.score_stride = near.capacity;
  task.scale = params_.scale;
  task.partials = partials;
  task.partial_stride = stride;
  const auto width = static_cast<size_t>(align_up(format.dims, kPadFloats));
  thread_local std::vector<float> tail_values;  // grows only
  for (int t = 0; t < task.tokens; ++t) {
    const int slot = positions[t] % kPageTokens;
    const Page page = page_at(index, positions[t] / kPageTokens);
    if (page.codes == nullptr) {
      if (tail_values.size() < kTileTokens * width) tail_values.resize(kTileTokens * width);
      float* values = tail_values.data() + static_cast<size_t>(t) * width;
      read_tail(format, page.tail, slot, values);
      task.values[t] = values;
      continue;
    }
    const auto* codes = reinterpret_cast<const unsigned char*>(page.codes);
    task.codes[t] = codes + format.word_at(0, slot) * 4;
    task.parameters[t] = codes + format.code_bytes();
    task.bases[t] = page.base;
  }
  const int bits = slice_bits(format.dtype);
  bodies_.attend_near[bits == 2 ? 0 : bits == 4 ? 1 : 2](task);
  return task.tokens;
}

}  // namespace fasa::cpu
