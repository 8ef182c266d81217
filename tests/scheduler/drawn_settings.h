// Random settings of steps.
#pragma once

#include <random>

#include "scheduler/step_settings.h"

namespace fasa::testing {

class Draw {
 public:
  explicit Draw(unsigned seed) : engine_(seed) {}
  int of(int low, int high) { return std::uniform_int_distribution(low, high)(engine_); }
  bool coin() { return of(0, 1) == 1; }

 private:
  std::mt19937 engine_;
};

inline LayerSettings draw_layer(Draw& draw) {
  LayerSettings layer;
  layer.dense = draw.of(0, 5) == 0;
  layer.budget = draw.coin() ? TokenBudget{.tokens = draw.of(1, 700), .share = 0}
                             : TokenBudget{.tokens = 0, .share = 0.01f * draw.of(1, 100)};
  layer.low_bit = draw.coin() ? TokenBudget{.tokens = draw.of(0, 300), .share = 0}
                              : TokenBudget{.tokens = 0, .share = 0.01f * draw.of(0, 100)};
  if (draw.of(0, 3) == 0) layer.low_bit = {.tokens = 0, .share = 1};
  if (draw.of(0, 3) == 0) layer.window = draw.of(1, 400);
  return layer;
}

inline StepSettings draw_settings(Draw& draw) {
  StepSettings settings;
  settings.layout.layers = 3;
  settings.layout.kv_heads = 2;
  settings.layout.gqa_group = 2;
  settings.layout.row = {.dtype = DType::kBF16, .key_dim = 32, .value_dim = 32};
  settings.layout.slice = {.dtype = SliceDType::kInt2, .dims = 32};
  settings.layout.sinks = draw.of(0, 4);
  settings.layout.recent = draw.of(1, 40);
  settings.max_hot_rows = draw.of(0, 800);
  settings.rows = draw.coin() ? RowTier::kDevice : RowTier::kHost;
  settings.low_bit_by_page = draw.coin();
  if (draw.coin()) settings.layout.values = {.dtype = SliceDType::kInt2, .dims = 32};
  for (int i = 0; i < settings.layout.layers; ++i) settings.layers.push_back(draw_layer(draw));
  if (!draw.coin()) return settings;
  settings.window_rows = settings.layout.without_slices();
  settings.window_rows.layers = settings.layout.layers = 0;
  for (LayerSettings& layer : settings.layers) {
    layer.in_window_rows = layer.window > 0;
    layer.dense |= layer.in_window_rows;
    layer.index = (layer.in_window_rows ? settings.window_rows : settings.layout).layers++;
  }
  return settings;
}

}  // namespace fasa::testing
