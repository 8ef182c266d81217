// Baselines and variants through the whole pipeline: properties that hold for each of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/base/error.h"
#include "tests/support/runs.h"

namespace fasa::testing {
namespace {

using ::testing::HasSubstr;
using Outputs = std::vector<std::vector<float>>;

constexpr int kPrompt = 150;
constexpr int kSteps = 40;

SelectionKind kind_of(const std::string& name) { return find_selection(name).value(); }

void expect_same(const Outputs& a, const Outputs& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(same_bits(a[i], b[i])) << what << ": differs at token " << i;
  }
}

Outputs generate(const RunSetup& setup, int chunk = kPrompt, int steps = kSteps,
                 const Geometry& geometry = small_geometry()) {
  RuntimeRun run(setup, geometry);
  const SequenceId id = run.runtime().create();
  run.prefill(id, 1, kPrompt, chunk);
  return run.decode(id, 1, steps);
}

struct Variant {
  std::string name;

  RunSetup setup(int64_t fac_tokens = 48) const {
    return {.fac_tokens = fac_tokens, .kind = kind_of(name)};
  }
};

class Selections : public ::testing::TestWithParam<Variant> {};

TEST_P(Selections, EverythingSelectedIsFull) {
  const Outputs full = generate({.kind = SelectionKind::kFull});
  expect_same(full, generate(GetParam().setup(10000)), "all");
  expect_same(full, generate(GetParam().setup(kPrompt + kSteps)), "just all");
}

TEST_P(Selections, ChunksAndThreadsDoNotMatter) {
  const Outputs base = generate(GetParam().setup());
  for (const int chunk : {17, 64, 149}) {
    expect_same(base, generate(GetParam().setup(), chunk), "chunk " + std::to_string(chunk));
  }
  RunSetup one = GetParam().setup();
  one.threads = 1;
  expect_same(base, generate(one), "one thread");
}

TEST_P(Selections, OtherSequencesDoNotMatter) {
  const Outputs alone = generate(GetParam().setup(), kPrompt, 12);
  RuntimeRun run(GetParam().setup());
  const SequenceId other = run.runtime().create();
  const SequenceId id = run.runtime().create();
  run.prefill(other, 2, 97, 97);
  run.prefill(id, 1, kPrompt, kPrompt);
  const size_t width = alone[0].size() / 3;
  for (size_t step = 0; step < alone.size(); ++step) {
    const Part parts[] = {
        {other, 2, run.runtime().length(other), 1, StepMode::kDecode},
        {id, 1, run.runtime().length(id), 1, StepMode::kDecode},
    };
    const std::vector<float> both = run.tape().step(parts);
    std::vector<float> mine;
    for (size_t layer = 0; layer < 3; ++layer) {
      const auto at = both.begin() + static_cast<int64_t>((2 * layer + 1) * width);
      mine.insert(mine.end(), at, at + static_cast<int64_t>(width));
    }
    ASSERT_TRUE(same_bits(mine, alone[step])) << step;
  }
}

TEST_P(Selections, TruncatedIsAsIfTheRestHadNeverBeen) {
  const Outputs base = generate(GetParam().setup());
  RuntimeRun run(GetParam().setup());
  const SequenceId id = run.runtime().create();
  run.prefill(id, 1, kPrompt, 64);
  run.decode(id, 7, 20);  // other tokens, truncated later
  run.runtime().truncate(id, kPrompt);
  Outputs outputs = run.decode(id, 1, 11);
  run.decode(id, 8, 9);
  run.runtime().truncate(id, kPrompt + 11);
  for (auto& step : run.decode(id, 1, kSteps - 11)) outputs.push_back(std::move(step));
  expect_same(base, outputs, "truncated");
}

TEST_P(Selections, TruncatedInsideThePrompt) {
  const Outputs base = generate(GetParam().setup());
  RuntimeRun run(GetParam().setup());
  const SequenceId id = run.runtime().create();
  run.prefill(id, 1, 75, 75);
  run.prefill(id, 9, 60, 60);
  run.decode(id, 9, 3);
  run.runtime().truncate(id, 75);
  run.prefill(id, 1, kPrompt - 75, kPrompt);
  expect_same(base, run.decode(id, 1, kSteps), "truncated");
}

TEST_P(Selections, ForksGoTheirOwnWays) {
  const Outputs base = generate(GetParam().setup());
  RuntimeRun run(GetParam().setup());
  const SequenceId id = run.runtime().create();
  run.prefill(id, 1, kPrompt, kPrompt);
  Outputs before = run.decode(id, 1, 15);
  const SequenceId whole = run.runtime().fork(id, kPrompt + 15);
  const SequenceId part = run.runtime().fork(id, kPrompt + 6);
  run.decode(id, 5, 5);
  for (const auto& [child, known] : {std::pair(whole, 15), std::pair(part, 6)}) {
    Outputs outputs(before.begin(), before.begin() + known);
    for (auto& step : run.decode(child, 1, kSteps - known)) outputs.push_back(std::move(step));
    expect_same(base, outputs, "fork at " + std::to_string(known));
  }
}

TEST_P(Selections, AnAbortedStepLeavesNothing) {
  const Outputs base = generate(GetParam().setup());
  RuntimeRun run(GetParam().setup());
  const SequenceId id = run.runtime().create();
  run.prefill(id, 1, kPrompt, kPrompt);
  Outputs outputs = run.decode(id, 1, 10);
  const Part part{id, 99, run.runtime().length(id), 1, StepMode::kDecode};
  run.tape().begin({&part, 1});
  run.tape().layers({&part, 1}, true, 2);
  run.runtime().abort_step();
  for (auto& step : run.decode(id, 1, kSteps - 10)) outputs.push_back(std::move(step));
  expect_same(base, outputs, "aborted");
}

TEST_P(Selections, DenseLayersAndWindows) {
  Geometry geometry = small_geometry();
  geometry.windows = {0, 90, 37};
  RunSetup setup = GetParam().setup();
  setup.dense_layers = {0};
  const Outputs base = generate(setup, kPrompt, kSteps, geometry);
  expect_same(base, generate(setup, 33, kSteps, geometry), "chunks");
  EXPECT_FALSE(same_bits(base.back(), generate(setup).back()));
}

TEST_P(Selections, AppendedWithoutAttention) {
  const auto appended = [](const std::vector<int>& chunks) {
    RuntimeRun run(GetParam().setup());
    const SequenceId id = run.runtime().create();
    for (const int tokens : chunks) {
      const Part part{id, 1, run.runtime().length(id), tokens, StepMode::kPrefill};
      run.tape().begin({&part, 1});
      run.tape().append_only({&part, 1});
      run.runtime().end_step();
    }
    return run.decode(id, 1, 12);
  };
  const Outputs at_once = appended({kPrompt});
  expect_same(at_once, appended({40, 64, kPrompt - 104}), "chunks");
  // Without a prefill that attends, selections that evict by the prompt's queries have seen none;
  // the others give the same outputs.
  const Outputs attended = generate(GetParam().setup(), kPrompt, 12);
  const bool by_queries =
      GetParam().name == "snapkv" || GetParam().name == "h2o" || GetParam().name == "rkv";
  if (!by_queries) expect_same(at_once, attended, "attended");
}

TEST_P(Selections, ElsewhereThanOnTheCpuAreRefused) {
  RunSetup setup = GetParam().setup();
  setup.device = "emulated";
  try {
    RuntimeRun run(setup);
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("selection."));
    EXPECT_THAT(error.what(), HasSubstr("on the cpu device"));
  }
}

// Every step attends to at most fac_tokens tokens; without eviction, to exactly as many.
TEST_P(Selections, CountsAsManyTokensAsItsBudget) {
  RuntimeRun run(GetParam().setup());
  const SequenceId id = run.runtime().create();
  run.prefill(id, 1, kPrompt, kPrompt);
  run.runtime().reset_metrics();
  run.decode(id, 1, 3);
  const StepCounters rows = run.runtime().metrics().rows;
  EXPECT_EQ(rows.protected_rows + rows.hits + rows.misses, 3u * 3 * 2 * 48);
}

INSTANTIATE_TEST_SUITE_P(All, Selections,
                         ::testing::Values(Variant{"oracle"}, Variant{"streaming"},
                                           Variant{"snapkv"}, Variant{"h2o"}, Variant{"rkv"},
                                           Variant{"quest"}, Variant{"sparq"}),
                         [](const auto& one) { return one.param.name; });

// Lossless slices give the oracle's selection.
TEST(Selections, FasaWithoutLossIsTheOracle) {
  const Outputs oracle = generate({.kind = kind_of("oracle"), .row_dtype = DType::kF32});
  expect_same(oracle, generate({.slice = SliceDType::kF32, .row_dtype = DType::kF32}), "f32");
  EXPECT_FALSE(same_bits(oracle.back(), generate({.row_dtype = DType::kF32}).back()));
}

}  // namespace
}  // namespace fasa::testing
