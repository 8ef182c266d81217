#include <gtest/gtest.h>

#include "tests/kernels/resolve_case.h"

namespace fasa {
namespace {

class ResolveTest : public ::testing::TestWithParam<ResolveSetting> {};

TEST_P(ResolveTest, SameAsReferenceAndRowsArrive) {
  RowKernels kernels = cpu_row_kernels();
  kernels.gather = [](const GatherParams& params) {
    uint64_t rows = 0;
    for (int head = 0; head < params.count * params.layout.kv_heads; ++head) {
      rows += static_cast<uint64_t>(params.fetch_counts[head]);
    }
    EXPECT_EQ(cpu::run(params).h2d_bytes, rows * static_cast<uint64_t>(params.layout.row.bytes()));
  };
  expect_resolves_as_reference(GetParam(), kernels);
}

INSTANTIATE_TEST_SUITE_P(Settings, ResolveTest, ::testing::ValuesIn(resolve_settings()),
                         [](const auto& test) { return name_of(test.param); });

TEST(ResolveTest, PrefillSequencesHaveNoSet) {
  RowShape shape;
  shape.on_device = false;
  RowCase cache(shape, {1}, 100);
  RowStep step = cache.begin({{0, 40}});
  Wave wave(cache, 1, 32);
  const std::vector<int32_t> sets(2 * 32, 0), sizes(2, 32);
  ResolveParams params;
  params.step = cache.params(step, 0);
  params.end = 32;
  params.selected_capacity = 32;
  params.sets = sets.data();
  params.selected_sizes = sizes.data();
  wave.point(params);
  cpu::run(params);
  EXPECT_EQ(wave.counts, (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(wave.ready, (std::vector<uint8_t>{1, 1}));
  EXPECT_EQ(wave.counters.protected_rows, 0u);
}

}  // namespace
}  // namespace fasa
