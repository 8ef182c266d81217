// Step numbers overflow: hot rows then start empty, and outputs do not change.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/base/error.h"
#include "tests/support/paged_engine.h"
#include "tests/support/runs.h"

namespace fasa::testing {
namespace {

constexpr int kSteps = 14;

struct Observed {
  std::vector<std::vector<float>> outputs;
  StepCounters rows;
};

Observed observe(RunSetup setup, int32_t max_steps) {
  setup.max_steps = max_steps;
  RuntimeRun run(setup);
  const SequenceId first = run.runtime().create();
  const SequenceId second = run.runtime().create();
  Observed seen{run.prefill(first, 1, 150, 70), {}};
  run.prefill(second, 2, 90, 90);
  run.runtime().reset_metrics();
  for (int step = 0; step < kSteps; ++step) {
    const Part parts[] = {{first, 1, 150 + step, 1, StepMode::kDecode},
                          {second, 2, 90 + step, 1, StepMode::kDecode}};
    seen.outputs.push_back(run.tape().step(parts));
  }
  seen.rows = run.runtime().metrics().rows;
  return seen;
}

TEST(StepNumbers, MayRunOutInTheSequencesApi) {
  const RunSetup setups[] = {
      {.device = "emulated"},
      {.device = "emulated", .hot_rows = 30, .depth = 1, .predictor = PredictorKind::kRunnersUp},
      {.device = "emulated", .depth = 2, .prediction_source = PredictionSource::kGoodQueries}};
  for (const RunSetup& setup : setups) {
    const Observed whole = observe(setup, kMaxSteps);
    for (const int32_t max_steps : {1, 2, 5}) {
      SCOPED_TRACE(max_steps);
      const Observed cut = observe(setup, max_steps);
      ASSERT_EQ(cut.outputs.size(), whole.outputs.size());
      for (size_t i = 0; i < whole.outputs.size(); ++i) {
        ASSERT_TRUE(same_bits(cut.outputs[i], whole.outputs[i])) << "output " << i;
      }
      EXPECT_EQ(cut.rows.hits + cut.rows.misses, whole.rows.hits + whole.rows.misses);
      if (setup.hot_rows == 64) {  // they held the sets of two steps, and lost them
        EXPECT_GT(cut.rows.misses, whole.rows.misses);
      }
    }
  }
}

TEST(StepNumbers, MayRunOutInThePagedApi) {
  const auto observe_paged = [](int32_t max_steps) {
    Engine engine({.device = "emulated", .max_steps = max_steps});
    Sequence sequence;
    std::vector<Token> tokens;
    const std::vector<int64_t> slots = engine.place(sequence, 150, 5);
    for (int64_t i = 0; i < 150; ++i) tokens.push_back({5, i});
    engine.append_all(tokens, slots);
    Observed seen;
    for (int step = 0; step < kSteps; ++step) {
      const int64_t position = sequence.length();
      engine.append_all({{5, position}}, engine.place(sequence, 1, 5));
      for (int layer = 0; layer < engine.geometry().layers; ++layer) {
        seen.outputs.push_back(engine.attend(layer, {&sequence})[0]);
      }
    }
    seen.rows = engine.paged().metrics().rows;
    return seen;
  };
  const Observed whole = observe_paged(kMaxSteps);
  for (const int32_t max_steps : {1, 2, 5}) {
    SCOPED_TRACE(max_steps);
    const Observed cut = observe_paged(max_steps);
    ASSERT_EQ(cut.outputs.size(), whole.outputs.size());
    for (size_t i = 0; i < whole.outputs.size(); ++i) {
      ASSERT_TRUE(same_bits(cut.outputs[i], whole.outputs[i])) << "output " << i;
    }
    EXPECT_GT(cut.rows.misses, whole.rows.misses);
  }
}

TEST(StepNumbers, HaveAsManyBitsAsTheyHave) {
  for (const int32_t max_steps : {0, -1, kMaxSteps + 1}) {
    EXPECT_THROW(RuntimeRun(RunSetup{.max_steps = max_steps}), UsageError) << max_steps;
    EXPECT_THROW(Engine({.max_steps = max_steps}), UsageError) << max_steps;
  }
}

}  // namespace
}  // namespace fasa::testing
