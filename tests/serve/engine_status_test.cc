// Decode steps are counted by their rows, and the time between them without prompts and pauses.
#include "runtime/serve/engine_status.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/serve/stepped_engine.h"

namespace fasa::serve {
namespace {

TEST(HistogramByRows, EachNumberOfRowsHasOneRange) {
  HistogramByRows steps;
  for (const size_t rows : {1, 2, 3, 4, 7, 8, 15, 16, 1000}) steps.of(rows).add(0.004);
  const uint64_t expected[] = {1, 2, 2, 2, 2};
  for (size_t i = 0; i < steps.ranges.size(); ++i) {
    EXPECT_EQ(steps.ranges[i].total, expected[i]) << HistogramByRows::kNames[i];
    EXPECT_EQ(steps.ranges[i].counts[2], expected[i]);  // up to 5 ms
  }
}

class StepHistograms : public ::testing::Test {
 protected:
  // All choices of a request have the same steps.
  void answer(int choices, int64_t tokens) {
    engine_.submit({.prompt = bytes_of(some_text(0, 20)),
                    .choices = choices,
                    .answer = {.max_tokens = tokens, .ignore_eos = true},
                    .observer = std::make_shared<Recorder>(choices)},
                   ++last_id_);
    while (!engine_.idle()) engine_.step();
  }
  uint64_t steps(size_t rows) {
    HistogramByRows found = engine_.stats().decode_step_seconds;
    return found.of(rows).total;
  }

  SteppedEngine engine_{LocalServer::open("cpu", {}), ServedModel{}, {.max_sequences = 8}};
  uint64_t last_id_ = 0;
};

TEST_F(StepHistograms, CountStepsByRows) {
  answer(1, 6);
  EXPECT_EQ(steps(1), 5u);  // the first token comes from the prompt
  EXPECT_EQ(engine_.stats().between_steps_seconds.total, 4u);
  answer(5, 4);
  EXPECT_EQ(steps(1), 5u);
  EXPECT_EQ(steps(4), 3u);
  EXPECT_EQ(engine_.stats().between_steps_seconds.total, 6u);
}

// The last step before a pause and the first behind it have no time between them.
TEST_F(StepHistograms, PausesDoNotCount) {
  answer(1, 3);
  engine_.step();  // as the loop does when a request comes
  answer(1, 3);
  EXPECT_EQ(steps(1), 4u);
  EXPECT_EQ(engine_.stats().between_steps_seconds.total, 2u);
}

}  // namespace
}  // namespace fasa::serve
