// The time and the traffic of a prompt, against what `fasa plan` says.
#include "runtime/synthetic/synthetic_prompt.h"

#include <gtest/gtest.h>

#include "runtime/api/settings.h"
#include "runtime/base/error.h"
#include "runtime/catalog/geometry_catalog.h"
#include "runtime/plan/planner.h"
#include "tests/support/synthetic_options.h"

namespace fasa::testing {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Two layers of the 8B geometry, with weights in four bits.
SyntheticOptions two_layers(int64_t tokens) {
  const ModelShape shape = find_model_shape("Llama-3.1-8B");
  SyntheticOptions settings;
  settings.geometry = shape.geometry;
  settings.geometry.layers = 2;
  settings.tokens = tokens;
  settings.max_steps = 1;
  settings.config.device.gpu = "RTX 4060 Ti 8GB";
  settings.weights = weight_load(shape, 4);
  return settings;
}

PromptCost planned(const SyntheticOptions& settings, int chunk, int wave_pages, int piece = 0) {
  const PlanMachine machine = make_plan_machine(settings.config, {});
  const StepSettings step =
      make_step_settings(settings.config, settings.geometry, settings.row_dtype, kEmulatedTraits,
                         settings.tokens + settings.max_steps);
  return prompt_cost(step, machine.rates,
                     {.tokens = settings.tokens,
                      .chunk = chunk,
                      .piece = piece,
                      .wave_pages = wave_pages,
                      .weights = settings.weights});
}

TEST(SyntheticPrompt, TakesWhatAPlanSays) {
  const SyntheticOptions settings = two_layers(16384);
  for (const int chunk : {512, 2048, 4096, 1000}) {
    const SyntheticPromptResult run = synthetic_prompt(settings, {.chunk = chunk});
    EXPECT_TRUE(run.wide_waves);
    const PromptCost plan = planned(settings, chunk, kWidePages);
    EXPECT_NEAR(run.seconds, plan.seconds, 0.15 * plan.seconds) << chunk;
    EXPECT_GE(run.seconds, plan.products);
    EXPECT_EQ(run.rows.prompt, plan.rows_back) << chunk;
    EXPECT_EQ(run.rows.write_back, plan.rows_to_host) << chunk;
    // The link moves embeddings, logits and tables besides.
    const uint64_t other = settings.tokens * settings.weights.hidden_bytes;
    EXPECT_NEAR(static_cast<double>(run.transfers.h2d_bytes),
                static_cast<double>(run.rows.prompt + other), 2e6);
  }
}

TEST(SyntheticPrompt, WavesAreShortWhereMemoryIs) {
  SyntheticOptions settings = two_layers(65536);
  settings.config.placement.hot_rows = 1024;
  const SyntheticPromptResult wide = synthetic_prompt(settings, {.chunk = 1024});
  settings.config.memory.device_memory = 192 * kMiB;
  const SyntheticPromptResult narrow = synthetic_prompt(settings, {.chunk = 1024});
  EXPECT_FALSE(narrow.wide_waves);
  EXPECT_EQ(narrow.rows.prompt, wide.rows.prompt);
  const PromptCost plan = planned(settings, 1024, kWavePages);
  EXPECT_NEAR(narrow.seconds, plan.seconds, 0.15 * plan.seconds);
  // Each wave but the first loads the states, each but the last stores them.
  EXPECT_GT(plan.state_bytes, 5 * planned(settings, 1024, kWidePages).state_bytes);
}

TEST(SyntheticPrompt, RowsOnTheDeviceNeedNoLink) {
  SyntheticOptions settings = two_layers(8192);
  settings.config.preset = "fasa-c";
  settings.config.apply_preset();
  const SyntheticPromptResult run = synthetic_prompt(settings, {.chunk = 2048});
  EXPECT_EQ(run.rows.prompt, 0u);
  EXPECT_EQ(run.rows.write_back, 0u);
  const PromptCost plan = planned(settings, 2048, kWavePages);
  EXPECT_NEAR(run.seconds, plan.seconds, 0.15 * plan.seconds);
}

TEST(SyntheticPrompt, ModelledTimesAreThoseOfRealKernels) {
  SyntheticOptions settings = small_settings();
  settings.config.placement.hot_rows = 100;
  const SyntheticPromptResult modelled = synthetic_prompt(settings, {.chunk = 300});
  settings.compute = SyntheticCompute::kReal;
  const SyntheticPromptResult real = synthetic_prompt(settings, {.chunk = 300});
  EXPECT_GT(real.rows.prompt, 0u);
  EXPECT_EQ(modelled.rows.prompt, real.rows.prompt);
  EXPECT_NEAR(modelled.seconds, real.seconds, 0.05 * real.seconds);  // noise is uploaded
}

// Rows cross the link (chunks - 1) / 2 times.
TEST(SyntheticPrompt, AtScale) {
  const SyntheticPromptResult run = synthetic_prompt(two_layers(131072), {.chunk = 4096});
  const double rows = 131072.0 * 2 * 8 * 512;
  EXPECT_EQ(static_cast<double>(run.rows.write_back), rows);
  EXPECT_EQ(static_cast<double>(run.rows.prompt), 15.5 * rows);
}

// Layer by layer: once a layer and chunk, so 1.5 times for four chunks; and out once.
TEST(SyntheticPrompt, AtScaleLayerByLayer) {
  const SyntheticOptions settings = two_layers(131072);
  const SyntheticPromptResult run = synthetic_prompt(settings, {.chunk = 32768, .piece = 1024});
  const double rows = 131072.0 * 2 * 8 * 512;
  EXPECT_EQ(static_cast<double>(run.rows.write_back), rows);
  EXPECT_EQ(static_cast<double>(run.rows.prompt), 1.5 * rows);
  const double all = static_cast<double>(run.transfers.h2d_bytes + run.transfers.d2h_bytes) -
                     131072.0 * static_cast<double>(settings.weights.hidden_bytes);
  EXPECT_LT(all, 2.6 * rows);
  const PromptCost plan = planned(settings, 32768, kWavePages, 1024);
  EXPECT_NEAR(run.seconds, plan.seconds, 0.15 * plan.seconds);
  EXPECT_LT(run.seconds, 1.1 * plan.products);
}

TEST(SyntheticPrompt, LayerByLayerTakesWhatAPlanSays) {
  SyntheticOptions settings = two_layers(16384);
  for (const char* preset : {"fasa-m", "fasa-c"}) {
    settings.config.preset = preset;
    settings.config.apply_preset();
    for (const auto& [chunk, piece] : {std::pair{4096, 512}, {16384, 1024}, {5120, 1000}}) {
      const SyntheticPromptResult run =
          synthetic_prompt(settings, {.chunk = chunk, .piece = piece});
      const PromptCost plan = planned(settings, chunk, kWavePages, piece);
      EXPECT_NEAR(run.seconds, plan.seconds, 0.15 * plan.seconds) << chunk;
      EXPECT_EQ(run.rows.prompt, plan.rows_back) << chunk;
      EXPECT_EQ(run.rows.write_back, plan.rows_to_host) << chunk;
      EXPECT_EQ(plan.state_bytes, 0u);
    }
  }
}

TEST(SyntheticPrompt, SaysWhatIsImpossible) {
  SyntheticOptions settings = small_settings();
  EXPECT_THROW(synthetic_prompt(settings, {.chunk = 0}), UsageError);
  settings.sequences = 2;
  EXPECT_THROW(synthetic_prompt(settings, {.chunk = 64}), UsageError);
}

}  // namespace
}  // namespace fasa::testing
