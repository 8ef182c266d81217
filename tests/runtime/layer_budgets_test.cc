// Budgets per layer: the sum is unchanged, and no layer gets less than the minimum.
#include "runtime/config/layer_budgets.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace fasa {
namespace {

Geometry geometry_of(int layers) {
  return {.layers = layers,
          .kv_heads = 1,
          .query_heads = 1,
          .key_dim = 8,
          .value_dim = 8,
          .rotary_dims = 8,
          .rotary_layout = RotaryLayout::kHalf,
          .scale = 1,
          .windows = {}};
}

Config pyramid_of(int64_t tokens) {
  Config config;
  config.selection.layer_budget = LayerBudget::kPyramid;
  config.selection.fac_tokens = {{.tokens = tokens, .share = 0}};
  return config;
}

TEST(LayerBudgets, UniformIsWhatFacTokensSays) {
  Config config;
  config.selection.fac_tokens = {{.tokens = 100, .share = 0}, {.tokens = 0, .share = 0.25}};
  const auto budgets = layer_budgets(config, geometry_of(2));
  EXPECT_EQ(budgets[0].tokens, 100);
  EXPECT_EQ(budgets[1].share, 0.25f);
}

TEST(LayerBudgets, ThePaperPyramid) {
  const auto budgets = layer_budgets(pyramid_of(1000), geometry_of(3));
  EXPECT_EQ(budgets[0].tokens, 1950);
  EXPECT_EQ(budgets[1].tokens, 1000);
  EXPECT_EQ(budgets[2].tokens, 50);
}

TEST(LayerBudgets, APyramidFallsAndKeepsTheTotal) {
  for (const int layers : {1, 2, 5, 32}) {
    for (const int64_t tokens : {21, 22, 40, 64, 257, 4096}) {
      const auto budgets = layer_budgets(pyramid_of(tokens), geometry_of(layers));
      int64_t sum = 0;
      for (size_t i = 0; i < budgets.size(); ++i) {
        sum += budgets[i].tokens;
        EXPECT_GE(budgets[i].tokens, 21);  // 4 sinks, 16 recent, and one selected token
        const int32_t before = i > 0 ? budgets[i - 1].tokens : INT32_MAX - 1;
        EXPECT_LE(budgets[i].tokens, before + 1);  // but for rounding
      }
      EXPECT_EQ(sum, tokens * layers) << layers << " layers, " << tokens << " tokens";
    }
  }
}

TEST(LayerBudgets, DenseLayersTakeNoPart) {
  Config config = pyramid_of(100);
  config.selection.dense_layers = {0, 2};
  const auto budgets = layer_budgets(config, geometry_of(5));
  EXPECT_EQ(budgets[1].tokens + budgets[3].tokens + budgets[4].tokens, 300);
  EXPECT_EQ(budgets[0].tokens, 100);
}

TEST(LayerBudgets, SharesStayShares) {
  Config config = pyramid_of(1);
  for (const double share : {0.1, 0.5, 0.75, 1.0}) {
    config.selection.fac_tokens = {{.tokens = 0, .share = share}};
    float sum = 0;
    for (const TokenBudget& budget : layer_budgets(config, geometry_of(4))) {
      EXPECT_GT(budget.share, 0);
      EXPECT_LE(budget.share, 1);
      sum += budget.share;
    }
    EXPECT_NEAR(sum, 4 * share, 1e-5);
  }
}

TEST(LayerBudgets, APyramidOfAListIsRefused) {
  Config config = pyramid_of(100);
  config.selection.fac_tokens.push_back({.tokens = 50, .share = 0});
  EXPECT_THROW(config.validate(), ConfigError);
}

}  // namespace
}  // namespace fasa
