#include "scheduler/step/step_scratch.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "scheduler/step/scratch_arena.h"

namespace fasa {
namespace {

bool has_dense_layers(const StepSettings& settings) {
  return std::any_of(
      settings.layers.begin(), settings.layers.end(),
      [](const LayerSettings& layer) { return layer.dense && !layer.in_window_rows; });
}

void allot_predictions(const StepSettings& settings, const DecodeCapacities& sizes,
                       ScratchArena& arena, DecodeScratch* scratch) {
  scratch->heads = int64_t{sizes.count} * settings.layout.kv_heads;
  scratch->prediction_rows = sizes.prediction_rows();
  scratch->prediction_capacity = sizes.prediction_capacity;
  scratch->prediction_buffers = sizes.prediction_buffers;
  if (scratch->prediction_rows == 0) return;
  const int64_t sets = sizes.prediction_buffers * scratch->heads;
  const int64_t streams = settings.prefetch_streams() * scratch->heads;
  if (sets > 0) {
    scratch->prediction_sets = arena.take<int32_t>(sets * sizes.prediction_capacity);
    scratch->prediction_sizes = arena.take<int32_t>(sets);
  }
  scratch->prediction_fetches = arena.take<FetchItem>(streams * scratch->prediction_rows);
  scratch->prediction_counts = arena.take<int32_t>(streams);
}

void allot_low_bit(const StepSettings& settings, const DecodeCapacities& sizes, ScratchArena& arena,
                   DecodeScratch* scratch) {
  const CacheLayout& layout = settings.layout;
  const int64_t heads = int64_t{sizes.count} * layout.kv_heads;
  const int64_t query_heads = heads * layout.gqa_group;
  const int64_t tiles = (int64_t{sizes.low_bit_capacity} + kTileTokens - 1) / kTileTokens;
  if (sizes.low_bit_capacity > 0) {
    scratch->low_bit.capacity = sizes.low_bit_capacity;
    scratch->low_bit.positions = arena.take<int32_t>(heads * sizes.low_bit_capacity);
    scratch->low_bit.sizes = arena.take<int32_t>(heads);
    scratch->low_bit.scores = arena.take<float>(query_heads * sizes.low_bit_capacity);
  }
  if (sizes.low_bit_blocks > 0) {
    const int64_t pages = int64_t{sizes.low_bit_blocks} * kLowBitBlockPages;
    scratch->low_bit_pages.capacity = static_cast<int32_t>(pages);
    scratch->low_bit_pages.scale = settings.scale;
    scratch->low_bit_pages.counts = arena.take<int32_t>(heads);
    scratch->low_bit_pages.maxima = arena.take<float>(query_heads * pages);
    scratch->low_bit_pages.scores = arena.take<int16_t>(query_heads * pages * kPageTokens);
  }
  scratch->low_bit_partials =
      arena.take<float>(query_heads * (tiles + sizes.low_bit_blocks) * (layout.row.value_dim + 2));
}

int64_t select_bytes(const StepSettings& settings, const DecodeCapacities& sizes) {
  const bool predictions = sizes.prediction_rows() > 0;
  const int behind = std::max(sizes.low_bit_capacity, predictions ? sizes.prediction_capacity : 0);
  const int capacity = sizes.selected_capacity + behind;
  if (settings.select_scratch == nullptr || capacity == 0) return 0;
  return static_cast<int64_t>(
      settings.select_scratch(settings.layout, sizes.count, capacity, sizes.select_pages));
}

DecodeScratch allot_decode(const StepSettings& settings, const DecodeCapacities& sizes,
                           ScratchArena& arena) {
  const CacheLayout& layout = settings.layout;
  const int64_t heads = int64_t{sizes.count} * layout.kv_heads;
  const int64_t query_heads = int64_t{sizes.count} * layout.query_heads();
  const int state_width = std::max(layout.row.value_dim, settings.window_rows.row.value_dim) + 2;
  const bool over_link = sizes.access == RowAccess::kOverLink;
  DecodeScratch scratch;
  scratch.selected_capacity = sizes.selected_capacity;
  scratch.wave = sizes.wave();
  scratch.dense_wave = sizes.dense_wave(settings);

  if (sizes.selected_capacity > 0) {
    scratch.sets = arena.take<int32_t>(heads * sizes.selected_capacity);
    scratch.selected_sizes = arena.take<int32_t>(heads);
    scratch.rows = arena.take<const std::byte*>(heads * scratch.wave);
    scratch.tile_ready = arena.take<uint8_t>(heads * (scratch.wave / kTileTokens));
    if (over_link) {
      scratch.fetches = arena.take<FetchItem>(heads * scratch.wave);
      scratch.fetch_counts = arena.take<int32_t>(heads);
    }
    if (sizes.needs_fetch_buffer())
      scratch.fetch_buffer = arena.take<std::byte>(heads * scratch.wave * layout.row.bytes());
    allot_low_bit(settings, sizes, arena, &scratch);
  }
  const int64_t tiles = std::max(scratch.wave, scratch.dense_wave) / kTileTokens;
  scratch.partials = arena.take<float>(query_heads * tiles * state_width);
  scratch.state = arena.take<float>(query_heads * state_width);
  if (over_link && sizes.dense_tokens > 0 && has_dense_layers(settings)) {
    for (std::byte*& pages : scratch.pages) {
      pages =
          arena.take<std::byte>((scratch.dense_wave / kPageTokens + 1) * layout.row_layer_bytes());
    }
  }
  allot_predictions(settings, sizes, arena, &scratch);
  scratch.select = arena.take<std::byte>(select_bytes(settings, sizes));
  scratch.select_pages = sizes.select_pages;
  return scratch;
}

PrefillScratch allot_prefill(const StepSettings& settings, const PrefillCapacities& sizes,
                             ScratchArena& arena) {
  const CacheLayout& layout = settings.layout;
  PrefillScratch scratch;
  scratch.wave_pages = std::min(sizes.past_pages, kWavePages);
  scratch.write_back_buffer = arena.take<std::byte>(sizes.pages * layout.row_layer_bytes());
  scratch.second_write_back_buffer =
      arena.take<std::byte>(sizes.pages * layout.row_layer_bytes()) - scratch.write_back_buffer;
  if (scratch.wave_pages > 0) {
    for (std::byte*& pages : scratch.pages) {
      pages = arena.take<std::byte>(scratch.wave_pages * layout.row_layer_bytes());
    }
    scratch.state = arena.take<float>(int64_t{sizes.tokens} * layout.query_heads() *
                                      (layout.row.value_dim + 2));
  }
  return scratch;
}

}  // namespace

StepScratch::StepScratch(Device& device, const StepSettings& settings, Fences& fences)
    : device_(device),
      settings_(settings),
      decode_memory_(device, fences, "decode scratch"),
      prefill_memory_(device, fences, "prefill scratch"),
      wide_memory_(device, fences, "prefill waves") {}

uint64_t scratch_bytes(const StepSettings& settings, const Capacities& capacities) {
  ScratchArena size(nullptr);
  allot_decode(settings, capacities.decode, size);
  if (capacities.prefill.tokens > 0) allot_prefill(settings, capacities.prefill, size);
  return size.bytes();
}

bool StepScratch::covers(const Capacities& capacities) const {
  return capacities_.decode.covers(capacities.decode) &&
         capacities_.prefill.covers(capacities.prefill);
}

void StepScratch::ensure(const Capacities& capacities) {
  // Nothing in it outlives a step, so the old part is freed before the new one is allocated: both
  // never have to fit at once. After a failure there is none; the next step that fits allocates it.
  if (!capacities_.decode.covers(capacities.decode)) {
    const DecodeCapacities sizes = capacities_.decode.joined(capacities.decode);
    drop_decode();
    ScratchArena size(nullptr);
    allot_decode(settings_, sizes, size);
    decode_memory_.resize(size.bytes());
    ScratchArena arena(decode_memory_.data());
    decode_ = allot_decode(settings_, sizes, arena);
    capacities_.decode = sizes;
  }
  if (!capacities_.prefill.covers(capacities.prefill)) {
    const PrefillCapacities sizes = capacities_.prefill.joined(capacities.prefill);
    prefill_memory_.resize(0);
    prefill_ = {};
    capacities_.prefill = {};
    ScratchArena size(nullptr);
    allot_prefill(settings_, sizes, size);
    prefill_memory_.resize(size.bytes());
    capacities_.prefill = sizes;
    allot_prefill_memory();
  }
}

void StepScratch::allot_prefill_memory() {
  ScratchArena arena(prefill_memory_.data());
  prefill_ = allot_prefill(settings_, capacities_.prefill, arena);
  if (!wide_memory_ || prefill_.wave_pages < kWavePages) return;
  prefill_.wave_pages = kWidePages;
  for (size_t half = 0; half < 2; ++half) {
    prefill_.pages[half] = wide_memory_.data() + half * wide_memory_.bytes() / 2;
  }
}

void StepScratch::append_key(std::vector<uint64_t>& key) const {
  key.push_back(reinterpret_cast<uintptr_t>(decode_memory_.data()));
  capacities_.decode.append_key(key);
}

void StepScratch::return_to(const Capacities& before) {
  if (capacities_ == before) return;
  drop_decode();
  drop_prefill();
  ensure(before);
}

void StepScratch::drop_decode() {
  decode_memory_.resize(0);
  decode_ = {};
  capacities_.decode = {};
}

void StepScratch::widen_waves() {
  if (capacities_.prefill.past_pages <= kWavePages || prefill_.wave_pages > kWavePages) return;
  const uint64_t bytes = wave_bytes(settings_, kWidePages);
  const MemoryUse use = device_.memory(MemorySpace::kDevice);
  if (use.limit_bytes - std::min(use.used_bytes, use.limit_bytes) < 2 * bytes) return;
  try {
    wide_memory_.resize(bytes);
  } catch (const BudgetError&) {
    return;
  }
  allot_prefill_memory();
}

void StepScratch::narrow_waves() {
  wide_memory_.resize(0);
  if (prefill_memory_) allot_prefill_memory();
}

void StepScratch::drop_prefill() {
  wide_memory_.resize(0);
  prefill_memory_.resize(0);
  prefill_ = {};
  capacities_.prefill = {};
}

}  // namespace fasa
