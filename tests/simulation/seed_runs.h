// Many seeds, one after the other or several at a time, and how far one is with them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tests/simulation/world.h"

namespace fasa::testing {

struct SeedRuns {
  uint64_t first = 0;
  uint64_t last = 299;
  int64_t operations = 300;
  int jobs = 1;
  std::string state;  // path; empty: nothing is kept
  bool faults = true;
  bool verbose = false;

  void take(const std::string& range);  // "A..B" or "A"; throws UsageError
};

struct SeedResult {
  uint64_t seed = 0;
  uint64_t digest = 0;
  Tally tally;
  std::optional<std::string> failure;  // what went wrong, and how to see it again
};

SeedResult run_seed(uint64_t seed, const SeedRuns& runs);
// Prints progress and what came of it. False at the first seed that fails.
bool run_seeds(const SeedRuns& runs);

}  // namespace fasa::testing
