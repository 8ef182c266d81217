#include "scheduler/prefetch/prefetch_planner.h"

#include <gtest/gtest.h>

#include <vector>

namespace fasa {
namespace {

TEST(PrefetchPlanner, EveryLayerButTheFirstIsPredictedOnceAndInTime) {
  for (const int layers : {1, 2, 5, 32}) {
    for (const int depth : {0, 1, 2, 4, 31, 40}) {
      const PrefetchPlanner planner(layers, depth);
      std::vector<int> looks(static_cast<size_t>(layers), 0);
      for (int layer = 0; layer < layers; ++layer) {
        const auto range = planner.targets(layer);
        for (int target = range.first; target < range.end; ++target) {
          EXPECT_GT(target, layer);
          EXPECT_LE(target, layer + depth);
          ++looks.at(static_cast<size_t>(target));
        }
      }
      for (int layer = 0; layer < layers; ++layer) {
        EXPECT_EQ(looks[static_cast<size_t>(layer)], depth > 0 && layer > 0 ? 1 : 0)
            << layers << " layers, depth " << depth << ", layer " << layer;
      }
    }
  }
}

TEST(PrefetchPlanner, RowsAreALayersShareOfTheLink) {
  // 1 GB/s for 100 us: 100 kB = 195 rows of 512 bytes, over 8 heads.
  EXPECT_EQ(PrefetchPlanner::rows_per_head(1e9, 100e-6, 512, 8, 1000), 24);
  EXPECT_EQ(PrefetchPlanner::rows_per_head(1e9, 100e-6, 512, 16, 1000), 12);  // two sequences
  EXPECT_EQ(PrefetchPlanner::rows_per_head(1e9, 100e-6, 512, 8, 20), 20);
  EXPECT_EQ(PrefetchPlanner::rows_per_head(1e3, 1e-6, 512, 8, 20), 0);
  EXPECT_EQ(PrefetchPlanner::rows_per_head(0, 100e-6, 512, 8, 20), 20);  // not measured yet
  EXPECT_EQ(PrefetchPlanner::rows_per_head(1e9, 0, 512, 8, 20), 20);
  EXPECT_EQ(PrefetchPlanner::rows_per_head(1e30, 1, 512, 8, 20), 20);
  EXPECT_EQ(PrefetchPlanner::rows_per_head(1e9, 100e-6, 512, 8, 0), 0);
}

}  // namespace
}  // namespace fasa
