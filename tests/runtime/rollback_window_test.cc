// A sequence frees rows that no later query can see: of all layers where each has a window, or of
// the layers with a window, kept as window rows, beside layers that see everything. Bits are those
// of a sequence that keeps everything, memory does not grow, and truncation works within the
// rollback window.
#include <gtest/gtest.h>

#include "offload/store/retention.h"
#include "runtime/base/error.h"
#include "tests/support/device_tensors.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/interpreted_kernels.h"
#include "tests/support/runs.h"

namespace fasa::testing {
namespace {

using Outputs = std::vector<std::vector<float>>;

constexpr int kPrompt = 1900;

const std::vector<int> kAllWindows = {90, 130, 37};
const std::vector<int> kSomeWindows = {90, 0, 130};

Geometry windowed(const RunSetup& setup, std::vector<int> windows = kAllWindows) {
  Geometry geometry = small_geometry(setup.row_dtype);
  geometry.windows = std::move(windows);
  return geometry;
}

void expect_same(const Outputs& a, const Outputs& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(same_bits(a[i], b[i])) << what << ": differs at token " << i;
  }
}

uint64_t rows_of(const KvMemory& memory) { return memory.host_rows + memory.device_rows; }

std::vector<RunSetup> setups() {
  std::vector<RunSetup> all;
  all.push_back({.device = "cpu"});
  all.push_back({.device = "cpu", .kind = SelectionKind::kFull});
  all.push_back({.device = "cpu", .low_bit_tokens = 20});
  all.push_back({.device = "cpu", .row_dtype = RowDType::kInt8});
  for (const auto rows : {RowPlacement::kHost, RowPlacement::kDevice, RowPlacement::kAuto}) {
    all.push_back({.device = "emulated", .rows = rows});
    all.push_back({.device = "emulated", .rows = rows, .kind = SelectionKind::kFull});
  }
  all.push_back(
      {.device = "emulated", .depth = 2, .prediction_source = PredictionSource::kGoodQueries});
  all.push_back({.device = "emulated", .depth = 2, .predictor = PredictorKind::kRunnersUp});
  return all;
}

std::string name_of(const RunSetup& setup) {
  return setup.device + ", rows " + std::to_string(static_cast<int>(setup.rows)) + ", kind " +
         std::to_string(static_cast<int>(setup.kind));
}

// Prompt and answer, truncated within the rollback window and continued, and a fork of the result.
Outputs outputs_of(const RunSetup& setup, const std::vector<int>& windows, int64_t rollback_tokens,
                   int chunk) {
  RuntimeRun run(setup, windowed(setup, windows));
  Runtime& runtime = run.runtime();
  const SequenceId id = runtime.create();
  runtime.set_rollback_tokens(id, rollback_tokens);
  runtime.reserve(id, kPrompt + 1000, chunk);
  Outputs outputs = run.prefill(id, 1, kPrompt, chunk);
  const auto add = [&](const Outputs& more) {
    outputs.insert(outputs.end(), more.begin(), more.end());
  };
  add(run.decode(id, 1, 600));
  runtime.truncate(id, runtime.length(id) - 70);
  add(run.decode(id, 2, 30));
  add(run.prefill(id, 3, 100, 33));
  const SequenceId child = runtime.fork(id, runtime.length(id) - 65);
  add(run.decode(child, 4, 90));
  add(run.decode(id, 5, 90));
  runtime.truncate(child, 0);
  add(run.prefill(child, 6, 200, 64));
  add(run.decode(child, 6, 5));
  return outputs;
}

TEST(RollbackWindow, BitsAreThoseOfASequenceThatKeepsAll) {
  for (const RunSetup& setup : setups()) {
    for (const auto& windows : {kAllWindows, kSomeWindows}) {
      const Outputs base = outputs_of(setup, windows, kUnlimitedRollback, 300);
      expect_same(base, outputs_of(setup, windows, 100, 300), name_of(setup));
      expect_same(base, outputs_of(setup, windows, 100, 64), name_of(setup) + ", chunks of 64");
    }
  }
}

// The GPU kernels do not read rows behind the window, either.
TEST(RollbackWindow, InterpretedKernelsHaveTheSameBits) {
  const auto gpu_outputs_of = [](const RunSetup& setup, const std::vector<int>& windows,
                                 int64_t rollback_tokens) {
    FakeCuda fake;
    RuntimeRun run(open_device(cuda_options(), interpreted_platform(fake)), setup,
                   windowed(setup, windows));
    const SequenceId id = run.runtime().create();
    run.runtime().set_rollback_tokens(id, rollback_tokens);
    run.runtime().reserve(id, 5000, 80);
    Outputs outputs = run.prefill(id, 1, 760, 80);
    for (auto& step : run.decode(id, 1, 30)) outputs.push_back(std::move(step));
    run.runtime().truncate(id, 780);
    for (auto& step : run.decode(id, 2, 5)) outputs.push_back(std::move(step));
    EXPECT_EQ(run.runtime().resume_point(id, 300) == 300, rollback_tokens == kUnlimitedRollback);
    return outputs;
  };
  for (const auto rows : {RowPlacement::kHost, RowPlacement::kDevice}) {
    for (const auto kind : {SelectionKind::kFasa, SelectionKind::kFull}) {
      const RunSetup setup{.rows = rows, .fac_tokens = 30, .kind = kind};
      for (const std::vector<int>& windows : {std::vector{20, 50, 37}, std::vector{20, 0, 37}}) {
        expect_same(gpu_outputs_of(setup, windows, kUnlimitedRollback),
                    gpu_outputs_of(setup, windows, 20), name_of(setup));
      }
    }
  }
}

// The hot rows' table lists the rows that a truncation cost, for the predictor, until their pages
// are freed.
TEST(RollbackWindow, RowsLostInATruncationAreNotFetchedFromFreedPages) {
  const RunSetup setup{.device = "emulated", .depth = 2, .predictor = PredictorKind::kRunnersUp};
  const auto life = [&](int64_t rollback_tokens) {
    RuntimeRun run(setup, windowed(setup));
    const SequenceId id = run.runtime().create();
    run.runtime().set_rollback_tokens(id, rollback_tokens);
    run.prefill(id, 1, 300, 100);
    run.decode(id, 1, 30);
    run.runtime().truncate(id, 325);
    run.prefill(id, 2, 900, 900);
    return run.decode(id, 2, 5);
  };
  expect_same(life(kUnlimitedRollback), life(20), "after a long prompt");
}

TEST(RollbackWindow, MemoryIsWhatWasReservedAndDoesNotGrow) {
  for (const RunSetup& setup : setups()) {
    RuntimeRun run(setup, windowed(setup));
    Runtime& runtime = run.runtime();
    const uint64_t predicted = rows_of(runtime.estimate_memory(50000, 100, 64));
    EXPECT_LT(predicted * 20, rows_of(runtime.estimate_memory(50000, 100))) << name_of(setup);
    const SequenceId id = runtime.create();
    runtime.set_rollback_tokens(id, 64);
    runtime.reserve(id, 50000, 100);
    const uint64_t host = runtime.memory().host_rows;
    const uint64_t slices = runtime.memory().device_slices;
    run.prefill(id, 1, 3000, 100);
    run.decode(id, 1, 700);
    EXPECT_EQ(runtime.memory().host_rows, host) << name_of(setup);
    EXPECT_EQ(runtime.memory().device_slices, slices) << name_of(setup);
    if (setup.rows != RowPlacement::kAuto) {
      EXPECT_EQ(rows_of(runtime.memory()), predicted) << name_of(setup);
    } else {
      EXPECT_LE(runtime.memory().device_rows, host) << name_of(setup);
    }
    runtime.free(id);
    EXPECT_EQ(rows_of(runtime.memory()), 0U) << name_of(setup);
  }
}

TEST(RollbackWindow, ALongSequenceFitsABudgetThatHoldsAFewPages) {
  RunSetup setup{.device = "emulated"};
  uint64_t rows = 0;
  {
    RuntimeRun run(setup, windowed(setup));
    rows = run.runtime().estimate_memory(50000, 100, 0).host_rows;
  }
  setup.host_memory = rows + (uint64_t{1} << 20);
  RuntimeRun run(setup, windowed(setup));
  const SequenceId all = run.runtime().create();
  EXPECT_THROW(run.runtime().reserve(all, 50000, 100), BudgetError);
  run.runtime().set_rollback_tokens(all, 0);
  run.runtime().reserve(all, 50000, 100);
  // Another sequence cannot get the reserved memory.
  const SequenceId other = run.runtime().create();
  EXPECT_THROW(run.runtime().reserve(other, 50000, 100), BudgetError);
  run.prefill(all, 1, 2500, 100);
  EXPECT_THROW(run.runtime().reserve(other, 50000, 100), BudgetError);
  run.decode(all, 1, 200);
}

TEST(RollbackWindow, WhatWasGivenBackIsRefused) {
  const RunSetup setup;
  RuntimeRun run(setup, windowed(setup));
  Runtime& runtime = run.runtime();
  const SequenceId id = runtime.create();
  EXPECT_THROW(runtime.set_rollback_tokens(id, -1), UsageError);
  runtime.set_rollback_tokens(id, 100);
  run.prefill(id, 1, kPrompt, 300);
  run.decode(id, 1, 1);
  const int64_t length = runtime.length(id);
  EXPECT_EQ(runtime.resume_point(id, 0), 0);
  EXPECT_EQ(runtime.resume_point(id, length - 100), length - 100);
  EXPECT_NE(runtime.resume_point(id, 500), 500);
  EXPECT_THROW(runtime.truncate(id, 500), UsageError);
  EXPECT_THROW(runtime.fork(id, 500), UsageError);
  std::vector<std::byte> rows(runtime.traits().page.rows), slices(runtime.traits().page.slices);
  const PageSpans page{rows, slices};
  EXPECT_THROW(runtime.exchange().export_pages(id, 3, {&page, 1}), UsageError);
  runtime.exchange().export_pages(id, length / kPageTokens - 1, {&page, 1});
  EXPECT_EQ(runtime.length(id), length);
  run.decode(id, 1, 1);
  runtime.free(runtime.fork(id, 0));
}

// Rows of layers with a window lie on the device and do not grow; the other layers keep all rows.
TEST(RollbackWindow, BesideLayersThatSeeEverythingWindowsHaveRowsOfTheirOwn) {
  for (const RunSetup& setup : setups()) {
    RuntimeRun run(setup, windowed(setup, kSomeWindows));
    Runtime& runtime = run.runtime();
    const auto of_all = [&](int64_t tokens) {  // one layer's rows
      return static_cast<uint64_t>(pages_of(tokens)) * runtime.traits().page.rows / 3;
    };
    const KvMemory predicted = runtime.estimate_memory(6000, 100, 64);
    if (setup.rows != RowPlacement::kAuto) {  // device copies take all free memory
      EXPECT_LT(rows_of(predicted), of_all(6000) + 2 * of_all(1300)) << name_of(setup);
      EXPECT_EQ(rows_of(runtime.estimate_memory(6000, 100, kUnlimitedRollback)), 3 * of_all(6000));
    }
    const SequenceId id = runtime.create();
    runtime.set_rollback_tokens(id, 64);
    runtime.reserve(id, 6000, 100);
    const KvMemory reserved = runtime.memory();
    if (setup.rows != RowPlacement::kAuto) {
      EXPECT_EQ(rows_of(reserved), rows_of(predicted)) << name_of(setup);
      EXPECT_EQ(reserved.device_rows, predicted.device_rows) << name_of(setup);
    }
    run.prefill(id, 1, 3000, 100);
    run.decode(id, 1, 700);
    EXPECT_EQ(runtime.memory().host_rows, reserved.host_rows) << name_of(setup);
    if (setup.rows != RowPlacement::kAuto) {
      EXPECT_EQ(runtime.memory().device_rows, reserved.device_rows) << name_of(setup);
    }
    EXPECT_EQ(runtime.resume_point(id, 3700 - 64), 3700 - 64) << name_of(setup);
    EXPECT_NE(runtime.resume_point(id, 2000), 2000) << name_of(setup);
    EXPECT_THROW(runtime.truncate(id, 2000), UsageError) << name_of(setup);
    runtime.free(id);
    EXPECT_EQ(rows_of(runtime.memory()), 0U) << name_of(setup);
  }
}

// All rows of a layer that sees everything can be read; freed window rows give an error.
TEST(RollbackWindow, OfWindowRowsOnlyThoseThatAreThereAreRead) {
  const RunSetup setup;
  RuntimeRun run(setup, windowed(setup, kSomeWindows));
  Runtime& runtime = run.runtime();
  const SequenceId id = runtime.create();
  EXPECT_EQ(runtime.info(id).rollback_tokens, kConversationRollback);
  runtime.set_rollback_tokens(id, 0);
  run.prefill(id, 1, kPrompt, 300);
  run.decode(id, 1, 1);
  const Geometry& g = runtime.geometry();
  DeviceTensors tensors(run.device());
  const auto read = [&](int layer, int64_t token) {
    runtime.read(id, layer, token, tensors.zeros(1, g.kv_heads, g.key_dim),
                 tensors.zeros(1, g.kv_heads, g.value_dim), tensors.stream());
  };
  read(1, 5);
  read(0, kPrompt - 10);
  EXPECT_THROW(read(0, 5), UsageError);
  EXPECT_THROW(runtime.fork(id, 500), UsageError);
  EXPECT_EQ(runtime.length(id), kPrompt + 1);
}

// Pages with the rows of all layers are saved and loaded. `heads`: of the layers with a window.
void expect_pages_are_saved_and_loaded(const RunSetup& setup, const HeadShape& heads) {
  Geometry geometry = windowed(setup, kSomeWindows);
  geometry.window_heads = heads;
  RuntimeRun run(setup, geometry);
  Runtime& runtime = run.runtime();
  const SequenceId id = runtime.create();
  run.prefill(id, 1, 300, 300);
  const PageBytes bytes = runtime.traits().page;
  const SequenceId copy = runtime.create();
  for (int64_t page = 0; page < pages_of(300); ++page) {
    const bool full = (page + 1) * kPageTokens <= 300;
    std::vector<std::byte> rows(bytes.rows), slices(full ? bytes.slices : 0);
    const PageSpans out{rows, slices};
    const ConstPageSpans in{rows, slices};
    runtime.exchange().export_pages(id, page, {&out, 1});
    runtime.exchange().import_pages(copy, full ? kPageTokens : 300 % kPageTokens, {&in, 1});
  }
  expect_same(run.decode(id, 1, 20), run.decode(copy, 1, 20), name_of(setup));
}

TEST(RollbackWindow, PagesOfASequenceWithWindowRowsAreSavedAndLoaded) {
  for (const RunSetup& setup : setups()) {
    for (const HeadShape& heads : {HeadShape{}, HeadShape{3, 44, 36, 44}}) {
      expect_pages_are_saved_and_loaded(setup, heads);
    }
  }
}

}  // namespace
}  // namespace fasa::testing
