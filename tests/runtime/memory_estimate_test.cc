// Scratch reserved for a context serves every shorter context.
#include "runtime/api/memory_estimate.h"

#include <gtest/gtest.h>

#include <random>

namespace fasa {
namespace {

class Draw {
 public:
  explicit Draw(unsigned seed) : engine_(seed) {}
  int of(int low, int high) { return std::uniform_int_distribution(low, high)(engine_); }
  bool coin() { return of(0, 1) == 1; }

 private:
  std::mt19937 engine_;
};

LayerSettings draw_layer(Draw& draw) {
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

StepSettings draw_settings(Draw& draw) {
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

TEST(MemoryEstimate, AShorterContextNeedsNoMoreOfAnything) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Draw draw(seed);
    const StepSettings settings = draw_settings(draw);
    const PredictionScratch predictions = {.max_depth = draw.of(0, 2), .writes_sets = draw.coin()};
    const int tokens = draw.of(1, 1200);
    const RowAccess access = settings.access_of(tokens, settings.max_hot_rows);
    const auto [reserved, prefill] =
        reserved_shapes(settings, tokens, 1, access, settings.max_hot_rows, predictions);
    for (int context = 1; context <= tokens; ++context) {
      ASSERT_TRUE(reserved.covers(
          decode_shape(settings, context, 1, access, settings.max_hot_rows, predictions)))
          << context << " of " << tokens << " tokens";
    }
  }
}

// Hot rows not used by sets are available to predictions: a longer set leaves fewer.
TEST(MemoryEstimate, PredictionsHaveTheHotRowsThatNoSetTakes) {
  const auto rows = [](DecodeShape shape, int hot_rows) {
    shape.hot_rows = hot_rows;
    return shape.prediction_rows();
  };
  const DecodeShape sets = {.selected_capacity = 100,
                            .predictions = true,
                            .prediction_capacity = 125,
                            .prediction_buffers = 2};
  EXPECT_EQ(rows(sets, 300), 125);
  EXPECT_EQ(rows(sets, 150), 50);
  EXPECT_EQ(rows(sets, 100), 0);
  EXPECT_EQ(rows(sets, 40), 0);
  EXPECT_EQ(rows({.selected_capacity = 100, .predictions = true}, 300), 200);
  EXPECT_EQ(rows({.selected_capacity = 100}, 300), 0);
}

}  // namespace
}  // namespace fasa
