#include "scheduler/step_scratch.h"

#include <algorithm>
#include <bit>

#include "scheduler/scratch_arena.h"

namespace fasa {
namespace {

// Entries per wave if not every miss finds a hot slot.
constexpr int kStagedWave = 4 * kTileTokens;
// Tokens per wave for dense attention with rows over the link.
constexpr int kDenseWaveStaged = 16 * kPageTokens;
constexpr int kPrefillWavePages = 16;

// Capped at the largest multiple of `unit` that fits an int.
int round_up(int value, int unit) {
  const int64_t up = (int64_t{value} + unit - 1) / unit * unit;
  return static_cast<int>(std::min<int64_t>(up, INT32_MAX / unit * unit));
}

bool needs_fetch_buffer(const DecodeShape& shape) {
  return shape.access == RowAccess::kOverLink && shape.hot_rows < shape.selected_capacity;
}

int dense_wave(const StepSettings& settings, RowAccess access) {
  return access == RowAccess::kLocal ? settings.dense_wave : kDenseWaveStaged;
}

bool has_dense_layers(const StepSettings& settings) {
  return std::any_of(
      settings.layers.begin(), settings.layers.end(),
      [](const LayerSettings& layer) { return layer.dense && !layer.in_window_rows; });
}

void allot_predictions(const StepSettings& settings, const DecodeShape& shape, ScratchArena& arena,
                       DecodeScratch* scratch) {
  scratch->heads = int64_t{shape.count} * settings.layout.kv_heads;
  scratch->prediction_rows = shape.prediction_rows();
  scratch->prediction_capacity = shape.prediction_capacity;
  scratch->prediction_buffers = shape.prediction_buffers;
  if (scratch->prediction_rows == 0) return;
  const int64_t sets = shape.prediction_buffers * scratch->heads;
  const int64_t streams = settings.prefetch_streams() * scratch->heads;
  if (sets > 0) {
    scratch->prediction_sets = arena.take<int32_t>(sets * shape.prediction_capacity);
    scratch->prediction_sizes = arena.take<int32_t>(sets);
  }
  scratch->prediction_fetches = arena.take<FetchItem>(streams * scratch->prediction_rows);
  scratch->prediction_counts = arena.take<int32_t>(streams);
}

void allot_low_bit(const StepSettings& settings, const DecodeShape& shape, ScratchArena& arena,
                   DecodeScratch* scratch) {
  const CacheLayout& layout = settings.layout;
  const int64_t heads = int64_t{shape.count} * layout.kv_heads;
  const int64_t query_heads = heads * layout.gqa_group;
  const int64_t tiles = round_up(shape.low_bit_capacity, kTileTokens) / kTileTokens;
  if (shape.low_bit_capacity > 0) {
    scratch->low_bit.capacity = shape.low_bit_capacity;
    scratch->low_bit.positions = arena.take<int32_t>(heads * shape.low_bit_capacity);
    scratch->low_bit.sizes = arena.take<int32_t>(heads);
    scratch->low_bit.scores = arena.take<float>(query_heads * shape.low_bit_capacity);
  }
  if (shape.low_bit_blocks > 0) {
    const int64_t pages = int64_t{shape.low_bit_blocks} * kLowBitBlockPages;
    scratch->low_bit_pages.capacity = static_cast<int32_t>(pages);
    scratch->low_bit_pages.scale = settings.scale;
    scratch->low_bit_pages.counts = arena.take<int32_t>(heads);
    scratch->low_bit_pages.maxima = arena.take<float>(query_heads * pages);
    scratch->low_bit_pages.scores = arena.take<int16_t>(query_heads * pages * kPageTokens);
  }
  scratch->low_bit_partials =
      arena.take<float>(query_heads * (tiles + shape.low_bit_blocks) * (layout.row.value_dim + 2));
}

int64_t select_bytes(const StepSettings& settings, const DecodeShape& shape) {
  const bool predictions = shape.prediction_rows() > 0;
  const int behind = std::max(shape.low_bit_capacity, predictions ? shape.prediction_capacity : 0);
  const int capacity = shape.selected_capacity + behind;
  if (settings.select_scratch == nullptr || capacity == 0) return 0;
  return static_cast<int64_t>(settings.select_scratch(settings.layout, shape.count, capacity));
}

DecodeScratch allot_decode(const StepSettings& settings, const DecodeShape& shape,
                           ScratchArena& arena) {
  const CacheLayout& layout = settings.layout;
  const int64_t heads = int64_t{shape.count} * settings.selected_heads();
  const int64_t query_heads = int64_t{shape.count} * layout.query_heads();
  const int state_width = std::max(layout.row.value_dim, settings.window_rows.row.value_dim) + 2;
  const bool over_link = shape.access == RowAccess::kOverLink;
  const bool staged = needs_fetch_buffer(shape);
  DecodeScratch scratch;
  scratch.selected_capacity = shape.selected_capacity;
  scratch.wave = round_up(shape.selected_capacity, kTileTokens);
  if (staged) scratch.wave = std::min(scratch.wave, kStagedWave);
  scratch.dense_wave =
      std::min(round_up(std::max(shape.dense_tokens, shape.window_tokens), kPageTokens),
               dense_wave(settings, shape.access));

  if (shape.selected_capacity > 0) {
    scratch.sets = arena.take<int32_t>(heads * shape.selected_capacity);
    scratch.selected_sizes = arena.take<int32_t>(heads);
    scratch.rows = arena.take<const std::byte*>(heads * scratch.wave);
    scratch.tile_ready = arena.take<uint8_t>(heads * (scratch.wave / kTileTokens));
    if (over_link) {
      scratch.fetches = arena.take<FetchItem>(heads * scratch.wave);
      scratch.fetch_counts = arena.take<int32_t>(heads);
    }
    if (staged)
      scratch.fetch_buffer = arena.take<std::byte>(heads * scratch.wave * layout.row.bytes());
    allot_low_bit(settings, shape, arena, &scratch);
  }
  const int64_t tiles = std::max(scratch.wave, scratch.dense_wave) / kTileTokens;
  scratch.partials = arena.take<float>(query_heads * tiles * state_width);
  scratch.state = arena.take<float>(query_heads * state_width);
  if (over_link && shape.dense_tokens > 0 && has_dense_layers(settings)) {
    for (std::byte*& pages : scratch.pages) {
      pages =
          arena.take<std::byte>((scratch.dense_wave / kPageTokens + 1) * layout.row_layer_bytes());
    }
  }
  allot_predictions(settings, shape, arena, &scratch);
  scratch.select = arena.take<std::byte>(select_bytes(settings, shape));
  return scratch;
}

PrefillScratch allot_prefill(const StepSettings& settings, const PrefillShape& shape,
                             ScratchArena& arena) {
  const CacheLayout& layout = settings.layout;
  PrefillScratch scratch;
  scratch.wave_pages = std::min(shape.past_pages, kPrefillWavePages);
  scratch.write_back_buffer = arena.take<std::byte>(shape.pages * layout.row_layer_bytes());
  scratch.second_write_back_buffer =
      arena.take<std::byte>(shape.pages * layout.row_layer_bytes()) - scratch.write_back_buffer;
  if (scratch.wave_pages > 0) {
    for (std::byte*& pages : scratch.pages) {
      pages = arena.take<std::byte>(scratch.wave_pages * layout.row_layer_bytes());
    }
    scratch.state = arena.take<float>(int64_t{shape.tokens} * layout.query_heads() *
                                      (layout.row.value_dim + 2));
  }
  return scratch;
}

}  // namespace

int DecodeShape::prediction_rows() const {
  if (!predictions) return 0;
  const int extra = std::max(0, hot_rows - selected_capacity);
  return prediction_buffers > 0 ? std::min(extra, prediction_capacity) : extra;
}

bool DecodeShape::covers(const DecodeShape& other) const {
  return count >= other.count && access >= other.access && hot_rows >= other.hot_rows &&
         selected_capacity >= other.selected_capacity &&
         low_bit_capacity >= other.low_bit_capacity && low_bit_blocks >= other.low_bit_blocks &&
         dense_tokens >= other.dense_tokens && window_tokens >= other.window_tokens &&
         predictions >= other.predictions && prediction_capacity >= other.prediction_capacity &&
         prediction_buffers >= other.prediction_buffers;
}

DecodeShape DecodeShape::joined(const DecodeShape& other) const {
  return {std::max(count, other.count),
          std::max(access, other.access),
          std::max(hot_rows, other.hot_rows),
          std::max(selected_capacity, other.selected_capacity),
          std::max(low_bit_capacity, other.low_bit_capacity),
          std::max(low_bit_blocks, other.low_bit_blocks),
          std::max(dense_tokens, other.dense_tokens),
          std::max(window_tokens, other.window_tokens),
          predictions || other.predictions,
          std::max(prediction_capacity, other.prediction_capacity),
          std::max(prediction_buffers, other.prediction_buffers)};
}

bool PrefillShape::covers(const PrefillShape& other) const {
  return pages >= other.pages && tokens >= other.tokens && past_pages >= other.past_pages;
}

PrefillShape PrefillShape::joined(const PrefillShape& other) const {
  return {std::max(pages, other.pages), std::max(tokens, other.tokens),
          std::max(past_pages, other.past_pages)};
}

StepScratch::StepScratch(Device& device, const StepSettings& settings, Fences& fences)
    : device_(device), settings_(settings), fences_(fences) {}

int StepScratch::dense_tokens(const StepSettings& settings, int64_t context, RowAccess access) {
  const int wave = dense_wave(settings, access);
  if (context >= wave) return wave;
  return std::max(kPageTokens, static_cast<int>(std::bit_ceil(static_cast<uint32_t>(context))));
}

DecodeScratch StepScratch::waves(const StepSettings& settings, const DecodeShape& decode) {
  ScratchArena size(nullptr);
  return allot_decode(settings, decode, size);
}

uint64_t StepScratch::bytes_for(const StepSettings& settings, const DecodeShape& decode,
                                const PrefillShape& prefill) {
  ScratchArena size(nullptr);
  allot_decode(settings, decode, size);
  if (prefill.tokens > 0) allot_prefill(settings, prefill, size);
  return size.bytes();
}

bool StepScratch::covers(const DecodeShape& decode, const PrefillShape& prefill) const {
  return decode_shape_.covers(decode) && prefill_shape_.covers(prefill);
}

void StepScratch::ensure(const DecodeShape& decode, const PrefillShape& prefill) {
  // Nothing in it outlives a step, so the old part is freed before the new one is allocated: both
  // never have to fit at once. After a failure there is none; the next step that fits allocates it.
  if (!decode_shape_.covers(decode)) {
    const DecodeShape shape = decode_shape_.joined(decode);
    drop_decode();
    ScratchArena size(nullptr);
    allot_decode(settings_, shape, size);
    decode_memory_ = device_.allocate(MemorySpace::kDevice, size.bytes(), "decode scratch");
    ScratchArena arena(decode_memory_.data());
    decode_ = allot_decode(settings_, shape, arena);
    decode_shape_ = shape;
  }
  if (!prefill_shape_.covers(prefill)) {
    const PrefillShape shape = prefill_shape_.joined(prefill);
    drop_prefill();
    ScratchArena size(nullptr);
    allot_prefill(settings_, shape, size);
    prefill_memory_ = device_.allocate(MemorySpace::kDevice, size.bytes(), "prefill scratch");
    ScratchArena arena(prefill_memory_.data());
    prefill_ = allot_prefill(settings_, shape, arena);
    prefill_shape_ = shape;
  }
}

void StepScratch::add_to_key(std::vector<uint64_t>& key) const {
  const DecodeShape& shape = decode_shape_;
  key.push_back(reinterpret_cast<uintptr_t>(decode_memory_.data()));
  for (const int size :
       {shape.count, static_cast<int>(shape.access), shape.hot_rows, shape.selected_capacity,
        shape.low_bit_capacity, shape.low_bit_blocks, shape.dense_tokens, shape.window_tokens,
        static_cast<int>(shape.predictions), shape.prediction_capacity, shape.prediction_buffers}) {
    key.push_back(static_cast<uint64_t>(size));
  }
}

StepScratch::Shapes StepScratch::shapes() const { return {decode_shape_, prefill_shape_}; }

void StepScratch::return_to(const Shapes& before) {
  if (shapes() == before) return;
  drop_decode();
  drop_prefill();
  ensure(before.decode, before.prefill);
}

void StepScratch::drop_decode() {
  if (decode_memory_) fences_.wait(fences_.latest());  // its memory leaves
  decode_memory_ = Buffer();
  decode_ = {};
  decode_shape_ = {};
}

void StepScratch::drop_prefill() {
  if (prefill_memory_) fences_.wait(fences_.latest());  // its memory leaves
  prefill_memory_ = Buffer();
  prefill_ = {};
  prefill_shape_ = {};
}

}  // namespace fasa
