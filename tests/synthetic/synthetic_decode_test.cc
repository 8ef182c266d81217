#include "runtime/synthetic/synthetic_decode.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "offload/host/topology.h"
#include "runtime/base/error.h"
#include "runtime/catalog/geometry_catalog.h"
#include "tests/support/synthetic_options.h"
#include "tests/support/traces.h"

namespace fasa::testing {
namespace {

SyntheticOptions llama_8b() {
  SyntheticOptions settings;
  settings.geometry = find_model_shape("Llama-3.1-8B").geometry;
  settings.max_steps = 16;
  return settings;
}

TEST(SyntheticDecode, IsTheSameTwice) {
  SyntheticDecode first(small_settings(), make_trace());
  SyntheticDecode second(small_settings(), make_trace());
  const SyntheticResult a = first.run(2, 6);
  const SyntheticResult b = second.run(2, 6);
  ASSERT_EQ(a.steps.size(), 6u);
  EXPECT_GT(a.tpot_seconds, 0);
  for (size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].fetch.rows.misses, b.steps[i].fetch.rows.misses);
    EXPECT_EQ(a.steps[i].transfers.h2d_bytes, b.steps[i].transfers.h2d_bytes);
    EXPECT_NEAR(a.steps[i].seconds, b.steps[i].seconds, 1e-12);
  }
}

TEST(SyntheticDecode, MissesAreWhatTheTraceBringsAnew) {
  SyntheticOptions settings = small_settings();
  settings.config.placement.hot_rows = 100;  // no more than the last set
  SyntheticDecode decode(settings, make_trace({.steps = 12, .keeps = 14}));
  for (int i = 0; i < 3; ++i) decode.step();
  const SyntheticStep step = decode.step();
  const StepCounters& rows = step.fetch.rows;
  EXPECT_EQ(rows.protected_rows + rows.hits + rows.misses, 5u * 3u * 100u);
  EXPECT_EQ(rows.protected_rows, 5u * 3u * 20u);
  // 4 of 18 competing tokens are new in every step.
  EXPECT_NEAR(static_cast<double>(rows.misses), 5 * 3 * 80 * 4.0 / 18, 5 * 3 * 8);
  const uint64_t row_bytes = 128;  // (32 + 24) x 2, padded
  EXPECT_GE(step.transfers.h2d_bytes, rows.misses * row_bytes);
  // New rows, and what a measured step counted.
  EXPECT_EQ(step.transfers.d2h_bytes, 5u * 3u * row_bytes + 5u * sizeof(StepCounters));
}

TEST(SyntheticDecode, ModelledTimesAreThoseOfRealKernels) {
  SyntheticOptions settings = small_settings();
  SyntheticDecode modelled(settings, make_trace());
  settings.compute = SyntheticCompute::kReal;
  SyntheticDecode real(settings, make_trace());
  for (int i = 0; i < 4; ++i) {
    const SyntheticStep a = modelled.step();
    const SyntheticStep b = real.step();
    EXPECT_EQ(a.fetch.rows.misses, b.fetch.rows.misses);
    EXPECT_EQ(a.fetch.rows.hits, b.fetch.rows.hits);
    EXPECT_EQ(a.transfers.d2h_bytes, b.transfers.d2h_bytes);
    EXPECT_NEAR(a.seconds, b.seconds, 0.02 * b.seconds) << i;  // selections may scan twice
  }
}

TEST(SyntheticDecode, LayersWithAWindowMayHaveHeadsOfAnotherShape) {
  SyntheticOptions settings = small_settings();
  settings.geometry.windows = {64, 0, 64, 0, 64};
  settings.geometry.window_heads = {1, 48, 8, 48};
  for (const SyntheticCompute compute : {SyntheticCompute::kReal, SyntheticCompute::kModelled}) {
    settings.compute = compute;
    SyntheticDecode decode(settings, make_trace());
    decode.step();
    EXPECT_GT(decode.step().seconds, 0);
  }
}

TEST(SyntheticDecode, RowsOnTheDeviceAlwaysHit) {
  SyntheticOptions settings = small_settings();
  settings.config.preset = "fasa-c";
  settings.config.apply_preset();
  SyntheticDecode decode(settings, make_trace());
  const SyntheticStep step = decode.step();
  EXPECT_EQ(step.fetch.rows.misses, 0u);
  EXPECT_EQ(step.transfers.d2h_bytes, 0u);
}

TEST(SyntheticDecode, FullAttentionStreamsAllRows) {
  SyntheticOptions settings = small_settings();
  settings.config.preset = "full";
  settings.config.apply_preset();
  settings.config.placement.rows = RowPlacement::kHost;
  SyntheticDecode decode(settings, make_trace());
  const uint64_t rows = 5 * 3 * 1501;
  EXPECT_GE(decode.step().transfers.h2d_bytes, rows * 128);
}

TEST(SyntheticDecode, TakesWeightsAndSequences) {
  SyntheticOptions settings = small_settings();
  SyntheticDecode alone(settings, make_trace());
  settings.weights.layer_bytes = 288'000'000;  // a millisecond
  SyntheticDecode weighted(settings, make_trace());
  EXPECT_NEAR(weighted.step().seconds - alone.step().seconds, 5 * 1e-3, 0.5e-3);
  settings.weights.layer_bytes = 0;
  settings.sequences = 3;
  SyntheticDecode many(settings, make_trace());
  const StepCounters rows = many.step().fetch.rows;
  EXPECT_EQ(rows.protected_rows + rows.hits + rows.misses, 3u * 5u * 3u * 100u);
}

TEST(SyntheticDecode, SaysWhatIsImpossible) {
  SyntheticOptions settings = small_settings();
  settings.tokens = 0;
  EXPECT_THROW(SyntheticDecode(settings, make_trace()), UsageError);
  settings = small_settings();
  EXPECT_THROW(SyntheticDecode(settings, SelectionTrace(shape_of({}))), UsageError);
  settings.config.memory.device_memory = 1 << 20;
  EXPECT_THROW(SyntheticDecode(settings, make_trace()), BudgetError);
  settings = small_settings();
  settings.max_steps = 1;
  SyntheticDecode decode(settings, make_trace());
  decode.step();
  EXPECT_THROW(decode.step(), UsageError);
}

// 128k tokens of an 8B geometry are 17 GB of rows and 1.2 GB of slices: neither is touched.
TEST(SyntheticDecode, ALargeGeometryTakesLittleMemory) {
  if (Topology::machine().memory_bytes() < uint64_t{4} << 30) GTEST_SKIP() << "a small machine";
  SyntheticDecode decode(llama_8b(), make_trace({.steps = 8, .keeps = 14}));
  const SyntheticResult result = decode.run(1, 4);
  EXPECT_EQ(result.memory.host_rows, uint64_t{131072 + 64} * 32 * 8 * 512);
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, 1 << 20) << "KiB";
  // Scoring alone: 37.7 MB a layer.
  const double scoring = 37.7e6 * KernelCosts().scored_byte;
  EXPECT_GT(result.tpot_seconds, 32 * scoring);
  EXPECT_LT(result.tpot_seconds, 32 * 2.5 * scoring);
}

}  // namespace
}  // namespace fasa::testing
