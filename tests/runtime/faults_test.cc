// The n-th allocation or copy fails, for every n: the affected call throws, committed tokens are
// kept, and the same call succeeds afterwards with the bits of an undisturbed run.
#include <gtest/gtest.h>

#include <functional>

#include "runtime/base/error.h"
#include "tests/support/runs.h"

namespace fasa::testing {
namespace {

// Runs a step; aborts it if it throws.
std::vector<float> step(RuntimeRun& run, Tape& tape, const Part& part) {
  tape.begin({&part, 1});
  try {
    std::vector<float> out = tape.layers({&part, 1});
    run.runtime().end_step();
    return out;
  } catch (...) {
    run.runtime().abort_step();
    throw;
  }
}

// The operations of every run; each can be repeated after a failure.
struct Script {
  explicit Script(RuntimeRun& run)
      : runtime(run.runtime()), tape(run.inner(), runtime, DType::kF32) {
    tape.on_begin = run.tape().on_begin;
    const auto forward = [&run, this](SequenceId& id, int tokens, StepMode mode) {
      const int64_t length = runtime.length(id);
      try {
        outputs.push_back(step(run, tape, {id, 1, length, tokens, mode}));
      } catch (...) {
        EXPECT_EQ(runtime.length(id), length);
        throw;
      }
    };
    a = runtime.create();
    calls.push_back([=, this] { forward(a, 100, StepMode::kPrefill); });
    calls.push_back([=, this] { forward(a, 70, StepMode::kPrefill); });
    calls.push_back([=, this] { forward(a, 1, StepMode::kDecode); });
    calls.push_back([this] { b = runtime.fork(a, 150); });
    calls.push_back([=, this] { forward(b, 1, StepMode::kDecode); });
    calls.push_back([this] { runtime.truncate(a, 130); });
    calls.push_back([=, this] { forward(a, 1, StepMode::kDecode); });
    calls.push_back([=, this] { forward(b, 90, StepMode::kPrefill); });
    calls.push_back([=, this] { forward(b, 1, StepMode::kDecode); });
  }
  Runtime& runtime;
  Tape tape;  // the tape's own memory and copies do not fail, only the runtime's
  SequenceId a{}, b{};
  std::vector<std::function<void()>> calls;
  std::vector<std::vector<float>> outputs;
};

std::vector<std::vector<float>> undisturbed(const RunSetup& setup) {
  RuntimeRun run(setup);
  Script script(run);
  for (const auto& call : script.calls) call();
  return script.outputs;
}

void disturb(const RunSetup& setup, void (FaultyDevice::*fail)(int64_t)) {
  const auto expected = undisturbed(setup);
  int failures = 0;
  for (int64_t n = 1;; ++n) {
    RuntimeRun run(setup);
    Script script(run);
    (run.device().*fail)(n);
    for (const auto& call : script.calls) {
      try {
        call();
      } catch (const Error&) {
        ++failures;
        call();
      }
    }
    ASSERT_EQ(script.outputs.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_TRUE(same_bits(script.outputs[i], expected[i])) << "fault " << n << ", output " << i;
    }
    script.runtime.free(script.a);
    script.runtime.free(script.b);
    EXPECT_EQ(script.runtime.memory().host_rows, 0u);
    EXPECT_EQ(script.runtime.memory().device_slices, 0u);
    if (!run.device().fired()) break;
  }
  // Device copies of rows make memory for many a refused allocation.
  EXPECT_GT(failures, setup.rows == RowPlacement::kAuto ? 5 : 15);
}

const RunSetup kSetups[] = {
    {.device = "emulated", .hot_rows = 30},
    {.device = "emulated", .depth = 2, .prediction_source = PredictionSource::kGoodQueries},
    {.device = "emulated", .depth = 1, .predictor = PredictorKind::kRunnersUp},
    {.device = "emulated", .rows = RowPlacement::kDevice},
    {.device = "emulated", .rows = RowPlacement::kAuto, .hot_rows = 30},
    {.device = "emulated", .hot_rows = 0, .slice = SliceDType::kBF16, .dense_layers = {1}}};

TEST(Faults, EveryAllocation) {
  for (const RunSetup& setup : kSetups) disturb(setup, &FaultyDevice::fail_allocation);
}

TEST(Faults, EveryCopy) {
  for (const RunSetup& setup : kSetups) disturb(setup, &FaultyDevice::fail_copy);
}

}  // namespace
}  // namespace fasa::testing
