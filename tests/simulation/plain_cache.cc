#include "tests/simulation/plain_cache.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <utility>

#include "kernels/cpu/kernels.h"
#include "kernels/slice_pack.h"
#include "runtime/api/settings.h"
#include "runtime/base/raw_slopes.h"
#include "tests/support/tape.h"

namespace fasa::testing {
namespace {

constexpr int kTied = kWriters - 1;  // the writer whose tokens are all equal
constexpr size_t kParts = 3;

// [writer][layer][position][part][kMaxWidth]
std::vector<float> make_values() {
  std::vector<float> all;
  all.reserve(size_t{kWriters} * kMaxLayers * kMaxTokens * kParts * kMaxWidth);
  for (int writer = 0; writer < kWriters; ++writer) {
    for (int layer = 0; layer < kMaxLayers; ++layer) {
      for (int position = 0; position < kMaxTokens; ++position) {
        for (size_t part = 0; part < kParts; ++part) {
          const int64_t place = writer == kTied ? 0 : position;
          for (int i = 0; i < kMaxWidth; ++i) {
            all.push_back(tape_value(static_cast<uint64_t>(writer), layer, place,
                                     static_cast<TapeKind>(part + 1), i));
          }
        }
      }
    }
  }
  return all;
}

// All layers in one layout, each with rows; the runtime decides which of them attend to everything.
StepSettings one_layout(const Config& config, const Geometry& geometry, RowDType row_dtype) {
  Geometry storing = geometry;
  storing.shared_layers = 0;
  StepSettings settings = make_paged_step_settings(config, storing, row_dtype, kHostTraits, 0);
  const StepSettings own = make_step_settings(config, geometry, row_dtype, kHostTraits, 0);
  for (int i = 0; i < own.layer_count(); ++i) {
    settings.layers[static_cast<size_t>(i)].dense = own.layer(i).dense;
  }
  return settings;
}

// Layers that share rows are coded as those that they share.
std::vector<int16_t> dims_of_copies(std::vector<int16_t> dims, const Geometry& geometry) {
  const int64_t of_layer = std::ssize(dims) / geometry.layers;
  for (int layer = geometry.storing_layers(); layer < geometry.layers; ++layer) {
    std::copy_n(dims.begin() + geometry.kv_layer(layer) * of_layer, of_layer,
                dims.begin() + layer * of_layer);
  }
  return dims;
}

Geometry without_window_heads(Geometry geometry) {
  geometry.window_heads = {};
  return geometry;
}

// All layers with the heads of those with a window.
Geometry with_window_heads(Geometry geometry) {
  const HeadShape heads = std::exchange(geometry.window_heads, {});
  geometry.kv_heads = heads.kv_heads;
  geometry.key_dim = heads.key_dim;
  geometry.value_dim = heads.value_dim;
  geometry.rotary_dims = heads.rotary_dims;
  return geometry;
}

int budget_pages() { return pages_of(kMaxTokens); }

}  // namespace

const float* token_values(int writer, int layer, int64_t position, TokenPart part) {
  static const std::vector<float> all = make_values();
  const int64_t token = (int64_t{writer} * kMaxLayers + layer) * kMaxTokens + position;
  return all.data() +
         (token * static_cast<int64_t>(kParts) + static_cast<int64_t>(part)) * kMaxWidth;
}

PlainCache::PlainCache(const Config& config, const Geometry& geometry, RowDType row_dtype,
                       const std::vector<int16_t>& slice_dims)
    : geometry_(without_window_heads(geometry)),
      settings_(one_layout(config, geometry_, row_dtype)),
      slice_dims_(stored_dims(settings_.layout.slice, dims_of_copies(slice_dims, geometry))),
      slopes_(raw_slopes(geometry)),
      arena_(1) {
  if (geometry.has_window_heads()) {
    Config all_tokens;  // windows are attended to whole
    all_tokens.selection.kind = SelectionKind::kFull;
    window_heads_ = std::make_unique<PlainCache>(all_tokens, with_window_heads(geometry), row_dtype,
                                                 std::vector<int16_t>{});
  }
  const auto take = [this](int64_t bytes) {
    memory_.emplace_back(static_cast<size_t>(bytes + kAlignment));
    const auto address = reinterpret_cast<uintptr_t>(memory_.back().data());
    return memory_.back().data() + (kAlignment - address % kAlignment) % kAlignment;
  };
  for (int page = 0; page < budget_pages(); ++page) {
    row_blocks_.push_back(take(settings_.layout.row_block_bytes()));
    if (settings_.layout.slice.dims == 0) continue;
    slice_blocks_.push_back(take(settings_.layout.slice_block_bytes()));
  }
  if (settings_.layout.slice.dims > 0) tail_ = take(settings_.layout.tail_bytes());
}

StepParams PlainCache::step_params(const SequenceDesc& sequence, int layer) const {
  const CacheLayout& layout = settings_.layout;
  return {.layout = layout,
          .sequences = &sequence,
          .count = 1,
          .layer = layer,
          .slice_dims = slice_dims_.data() +
                        static_cast<size_t>(layout.head_index(layer, 0) * layout.slice.dims),
          .slopes = slopes_.empty() ? nullptr : slopes_.data()};
}

void PlainCache::append(std::span<const uint8_t> history, int layer) {
  const auto key_width = static_cast<size_t>(geometry_.kv_heads * geometry_.key_dim);
  const auto value_width = static_cast<size_t>(geometry_.kv_heads * geometry_.value_dim);
  const auto tokens = static_cast<int64_t>(history.size());
  const int from = geometry_.kv_layer(layer);
  keys_.resize(history.size() * key_width);
  values_.resize(history.size() * value_width);
  for (size_t i = 0; i < history.size(); ++i) {
    const auto position = static_cast<int64_t>(i);
    std::copy_n(token_values(history[i], from, position, TokenPart::kKey), key_width,
                keys_.begin() + static_cast<int64_t>(i * key_width));
    std::copy_n(token_values(history[i], from, position, TokenPart::kValue), value_width,
                values_.begin() + static_cast<int64_t>(i * value_width));
  }
  const SequenceDesc sequence{.mode = StepMode::kPrefill,
                              .tokens = static_cast<int32_t>(tokens),
                              .slice_blocks = slice_blocks_.data(),
                              .row_blocks = row_blocks_.data(),
                              .tail = tail_};
  cpu::run(AppendParams{.step = step_params(sequence, layer),
                        .k = ConstTensorView::dense(keys_.data(), DType::kF32, tokens,
                                                    geometry_.kv_heads, geometry_.key_dim),
                        .v = ConstTensorView::dense(values_.data(), DType::kF32, tokens,
                                                    geometry_.kv_heads, geometry_.value_dim)});
}

std::vector<Attended> PlainCache::attend(std::span<const uint8_t> history, int64_t start,
                                         StepMode mode) {
  std::vector<Attended> layers;
  arena_.execute([&] {
    for (int layer = 0; layer < geometry_.layers; ++layer) {
      PlainCache& cache = cache_of(layer);
      cache.append(history, layer);
      layers.push_back(cache.attend_layer(history, start, mode, layer));
    }
  });
  return layers;
}

Attended PlainCache::attend_layer(std::span<const uint8_t> history, int64_t start, StepMode mode,
                                  int layer) {
  const auto end = static_cast<int64_t>(history.size());
  const int64_t tokens = end - start;
  const auto width = static_cast<size_t>(geometry_.query_heads * geometry_.key_dim);
  queries_.clear();
  for (int64_t i = start; i < end; ++i) {
    const float* q = token_values(history[static_cast<size_t>(i)], layer, i, TokenPart::kQuery);
    queries_.insert(queries_.end(), q, q + width);
  }
  Attended attended;
  attended.out.resize(static_cast<size_t>(tokens * geometry_.query_heads * geometry_.value_dim));
  attended.lse.resize(static_cast<size_t>(tokens * geometry_.query_heads));
  const SequenceDesc sequence{.mode = mode,
                              .tokens = static_cast<int32_t>(tokens),
                              .start = static_cast<int32_t>(start),
                              .slice_blocks = slice_blocks_.data(),
                              .row_blocks = row_blocks_.data(),
                              .tail = tail_};
  const StepParams step = step_params(sequence, layer);
  const LayerSettings& wanted = settings_.layer(layer);
  const auto q = ConstTensorView::dense(queries_.data(), DType::kF32, tokens, geometry_.query_heads,
                                        geometry_.key_dim);
  const auto out = TensorView::dense(attended.out.data(), DType::kF32, tokens,
                                     geometry_.query_heads, geometry_.value_dim);
  if (mode == StepMode::kPrefill) {
    cpu::run(PrefillParams{.step = step,
                           .q = q,
                           .scale = settings_.scale,
                           .window = wanted.window,
                           .begin_page = 0,
                           .end_page = pages_of(end),
                           .pages = {},
                           .out = out,
                           .lse = attended.lse.data()});
    return attended;
  }
  AttendParams params{.step = step,
                      .q = q,
                      .scale = settings_.scale,
                      .window = wanted.window,
                      .begin = 0,
                      .end = pages_of(kMaxTokens) * kPageTokens,
                      .pages = {},
                      .out = out,
                      .lse = attended.lse.data()};
  if (wanted.dense) {
    cpu::run(params);
  } else {
    select_and_attend(step, q, params);
  }
  return attended;
}

void PlainCache::select_and_attend(const StepParams& step, ConstTensorView q, AttendParams params) {
  constexpr int32_t kRoom = pages_of(kMaxTokens) * kPageTokens;
  const LayerSettings& wanted = settings_.layer(step.layer);
  const auto heads = static_cast<size_t>(geometry_.kv_heads);
  std::vector<int32_t> low_bit_positions(heads * size_t{kRoom});
  std::vector<int32_t> low_bit_sizes(heads);
  std::vector<float> low_bit_scores(static_cast<size_t>(geometry_.query_heads) * size_t{kRoom});
  constexpr int32_t kPages = pages_of(kMaxTokens);
  std::vector<int32_t> page_counts(heads);
  std::vector<float> page_maxima(static_cast<size_t>(geometry_.query_heads) * size_t{kPages});
  std::vector<int16_t> page_scores(low_bit_scores.size());
  if (settings_.is_by_page(step.layer) && settings_.layout.has_values()) {
    params.low_bit_pages = {.capacity = kPages,
                            .scale = settings_.scale,
                            .counts = page_counts.data(),
                            .maxima = page_maxima.data(),
                            .scores = page_scores.data()};
  } else if (settings_.layout.has_values()) {
    params.low_bit = {.capacity = kRoom,
                      .positions = low_bit_positions.data(),
                      .sizes = low_bit_sizes.data(),
                      .scores = low_bit_scores.data()};
  }
  std::vector<int32_t> sets(heads * size_t{kRoom});
  std::vector<int32_t> sizes(heads);
  std::vector<const std::byte*> rows(heads * size_t{kRoom});
  std::vector<uint8_t> ready(heads * size_t{kRoom / kTileTokens});
  StepCounters counters;
  cpu::run(SelectParams{.step = step,
                        .q = q,
                        .budget = wanted.budget,
                        .window = wanted.window,
                        .selected_capacity = kRoom,
                        .sets = sets.data(),
                        .selected_sizes = sizes.data(),
                        .counters = &counters,
                        .low_bit_budget = wanted.low_bit,
                        .low_bit = params.low_bit,
                        .low_bit_pages = params.low_bit_pages});
  cpu::run(ResolveParams{.step = step,
                         .begin = 0,
                         .end = kRoom,
                         .step_number = {},
                         .selected_capacity = kRoom,
                         .sets = sets.data(),
                         .selected_sizes = sizes.data(),
                         .rows = rows.data(),
                         .tile_ready = ready.data(),
                         .counters = &counters});
  params.end = kRoom;
  params.selected_sizes = sizes.data();
  params.rows = rows.data();
  params.tile_ready = ready.data();
  params.sets = sets.data();
  params.selected_capacity = kRoom;
  cpu::run(params);
}

void PlainCache::read(std::span<const uint8_t> history, int layer, std::vector<float>* keys,
                      std::vector<float>* values) {
  arena_.execute([&] {
    PlainCache& cache = cache_of(layer);
    cache.append(history, layer);
    cache.read_rows(layer, static_cast<int64_t>(history.size()), keys, values);
  });
}

void PlainCache::read_rows(int layer, int64_t tokens, std::vector<float>* keys,
                           std::vector<float>* values) {
  keys->resize(static_cast<size_t>(tokens * geometry_.kv_heads * geometry_.key_dim));
  values->resize(static_cast<size_t>(tokens * geometry_.kv_heads * geometry_.value_dim));
  cpu::run(ReadRowsParams{.layout = settings_.layout,
                          .layer = layer,
                          .row_blocks = row_blocks_.data(),
                          .first = 0,
                          .access = RowAccess::kLocal,
                          .k = TensorView::dense(keys->data(), DType::kF32, tokens,
                                                 geometry_.kv_heads, geometry_.key_dim),
                          .v = TensorView::dense(values->data(), DType::kF32, tokens,
                                                 geometry_.kv_heads, geometry_.value_dim)});
}

}  // namespace fasa::testing
