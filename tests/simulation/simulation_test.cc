// The simulation itself: a seed determines the run, on any thread and at every repetition.
#include <gtest/gtest.h>

#include "tests/simulation/seed_runs.h"

namespace fasa::testing {
namespace {

TEST(Simulation, TheSameSeedIsTheSameRun) {
  SeedRuns runs;
  runs.operations = 120;
  for (uint64_t seed = 1000; seed < 1004; ++seed) {
    const SeedResult once = run_seed(seed, runs);
    const SeedResult again = run_seed(seed, runs);
    ASSERT_FALSE(once.failure.has_value()) << *once.failure;
    EXPECT_EQ(once.digest, again.digest) << seed;
    EXPECT_NE(once.digest, run_seed(seed + 1, runs).digest) << seed;
  }
}

// Each operation has its own generator: a shorter run is the beginning of a longer one.
TEST(Simulation, ARunIsTheBeginningOfALongerOne) {
  SeedRuns runs;
  for (const int64_t operations : {10, 50}) {
    runs.operations = operations;
    const Tally tally = run_seed(7, runs).tally;
    EXPECT_EQ(tally.operations, operations);
  }
}

TEST(Simulation, RangesAreRead) {
  SeedRuns runs;
  runs.take("5..9");
  EXPECT_EQ(runs.first, 5u);
  EXPECT_EQ(runs.last, 9u);
  runs.take("3");
  EXPECT_EQ(runs.last, 3u);
  EXPECT_ANY_THROW(runs.take("9..5"));
  EXPECT_ANY_THROW(runs.take("a"));
}

}  // namespace
}  // namespace fasa::testing
