#include "scheduler/plan/capacities.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace fasa {
namespace {

// Entries per wave if not every miss finds a hot slot.
constexpr int kFetchedWave = 4 * kTileTokens;
// Tokens per wave of attention to all tokens with rows over the link.
constexpr int kStreamedWave = 16 * kPageTokens;

constexpr std::tuple kDecodeSizes{&DecodeCapacities::count,
                                  &DecodeCapacities::access,
                                  &DecodeCapacities::hot_rows,
                                  &DecodeCapacities::selected_capacity,
                                  &DecodeCapacities::select_pages,
                                  &DecodeCapacities::low_bit_capacity,
                                  &DecodeCapacities::low_bit_blocks,
                                  &DecodeCapacities::dense_tokens,
                                  &DecodeCapacities::window_tokens,
                                  &DecodeCapacities::predictions,
                                  &DecodeCapacities::prediction_capacity,
                                  &DecodeCapacities::prediction_buffers};
constexpr std::tuple kPrefillSizes{&PrefillCapacities::pages, &PrefillCapacities::tokens,
                                   &PrefillCapacities::past_pages};

template <typename Sizes, typename T>
bool all_cover(const Sizes& sizes, const T& one, const T& other) {
  return std::apply([&](auto... size) { return ((one.*size >= other.*size) && ...); }, sizes);
}

template <typename Sizes, typename T>
T largest_of(const Sizes& sizes, T one, const T& other) {
  std::apply([&](auto... size) { ((one.*size = std::max(one.*size, other.*size)), ...); }, sizes);
  return one;
}

// Capped at the largest multiple of `unit` that fits an int.
int round_up(int value, int unit) {
  const int64_t up = (int64_t{value} + unit - 1) / unit * unit;
  return static_cast<int>(std::min<int64_t>(up, INT32_MAX / unit * unit));
}

int largest_dense_wave(const StepSettings& settings, RowAccess access) {
  return access == RowAccess::kLocal ? settings.dense_wave : kStreamedWave;
}

// A power of two up to a whole wave, so that a growing sequence reallocates scratch only a few
// times.
int dense_tokens_for(const StepSettings& settings, int32_t tokens, RowAccess access) {
  const int wave = largest_dense_wave(settings, access);
  if (tokens >= wave) return wave;
  return std::max(kPageTokens, static_cast<int>(std::bit_ceil(static_cast<uint32_t>(tokens))));
}

void add_predictions(const StepSettings& settings, const Load& load, DecodeCapacities& sizes) {
  sizes.predictions = true;
  if (!settings.prefetches(sizes.hot_rows)) return;
  const bool sets = load.predictions.writes_sets;
  for (int i = 0; i < settings.layer_count(); ++i) {
    const LayerSettings& layer = settings.layer(i);
    if (layer.dense) continue;
    const TokenBudget budget = sets ? layer.prediction_budget() : layer.budget;
    const int32_t tokens =
        budget.of(settings.visible_tokens(i, load.context), settings.budget_floor());
    sizes.prediction_capacity =
        std::max(sizes.prediction_capacity, sets ? tokens : std::min(tokens, kMaxRunnersUp));
  }
  // Lists of runners-up last from step to step.
  sizes.prediction_buffers = sets ? load.predictions.max_depth + 1 : settings.layer_count();
}

void add_layer(const StepSettings& settings, int index, const Load& load, DecodeCapacities& sizes) {
  const auto grow = [](int& size, int least) { size = std::max(size, least); };
  const LayerSettings& layer = settings.layer(index);
  const int32_t visible = settings.visible_tokens(index, load.context);
  if (layer.in_window_rows) {
    return grow(sizes.window_tokens, dense_tokens_for(settings, visible, load.access));
  }
  const int32_t set = layer.dense ? visible : settings.selected_tokens(index, visible);
  // While a context is no longer than its set, a layer attends to all of its local rows.
  if (layer.dense || load.access == RowAccess::kLocal) {
    grow(sizes.dense_tokens, dense_tokens_for(settings, set, load.access));
  }
  if (settings.attends_to_all(index, visible, load.access)) return;
  grow(sizes.selected_capacity, set);
  // A window may begin inside a page. Rounded, so that a growing context seldom needs more.
  grow(sizes.select_pages, round_up(pages_of(visible) + (layer.window > 0 ? 1 : 0), 16));
  grow(sizes.low_bit_capacity, settings.low_bit_tokens(index, visible));
  grow(sizes.low_bit_blocks, low_bit_blocks(settings.low_bit_pages(index, visible)));
}

}  // namespace

bool DecodeCapacities::covers(const DecodeCapacities& other) const {
  return all_cover(kDecodeSizes, *this, other);
}

DecodeCapacities DecodeCapacities::joined(const DecodeCapacities& other) const {
  return largest_of(kDecodeSizes, *this, other);
}

void DecodeCapacities::append_key(std::vector<uint64_t>& key) const {
  std::apply([&](auto... size) { (key.push_back(static_cast<uint64_t>(this->*size)), ...); },
             kDecodeSizes);
}

int DecodeCapacities::wave() const {
  const int whole = round_up(selected_capacity, kTileTokens);
  return needs_fetch_buffer() ? std::min(whole, kFetchedWave) : whole;
}

int DecodeCapacities::dense_wave(const StepSettings& settings) const {
  return std::min(round_up(std::max(dense_tokens, window_tokens), kPageTokens),
                  largest_dense_wave(settings, access));
}

int DecodeCapacities::prediction_rows() const {
  if (!predictions) return 0;
  const int extra = std::max(0, hot_rows - selected_capacity);
  return prediction_buffers > 0 ? std::min(extra, prediction_capacity) : extra;
}

bool PrefillCapacities::covers(const PrefillCapacities& other) const {
  return all_cover(kPrefillSizes, *this, other);
}

PrefillCapacities PrefillCapacities::joined(const PrefillCapacities& other) const {
  return largest_of(kPrefillSizes, *this, other);
}

Capacities capacities_for(const StepSettings& settings, const Load& load) {
  const bool local = load.access == RowAccess::kLocal;
  Capacities sizes;
  sizes.decode = {
      .count = load.count, .access = load.access, .hot_rows = local ? 0 : load.hot_rows};
  for (int i = 0; i < settings.layer_count(); ++i) add_layer(settings, i, load, sizes.decode);
  if (local) return sizes;
  if (load.predictions.max_depth > 0) add_predictions(settings, load, sizes.decode);
  const auto tokens = static_cast<int>(std::min<int64_t>(load.step_tokens, load.context));
  if (load.step_tokens > 1 && tokens > 0) {
    sizes.prefill = {.pages = std::min(pages_of(tokens) + 1, pages_of(load.context)),
                     .tokens = tokens,
                     .past_pages = static_cast<int>((load.context - 1) / kPageTokens)};
  }
  return sizes;
}

PrefillCapacities prefill_capacities(int64_t start, int tokens, RowAccess access) {
  if (access == RowAccess::kLocal) return {};
  return {.pages = write_back_pages_of(start, tokens),
          .tokens = tokens,
          .past_pages = static_cast<int>(start / kPageTokens)};
}

int largest_set(const StepSettings& settings, int64_t context) {
  int largest = 0;
  for (int i = 0; i < settings.layer_count(); ++i) {
    if (settings.layer(i).dense) continue;
    largest = std::max(largest, settings.selected_tokens(i, settings.visible_tokens(i, context)));
  }
  return largest;
}

}  // namespace fasa
