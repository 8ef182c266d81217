// Runs many seeds, one after the other or in parallel, and keeps track of the progress.
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
  std::string state;  // path; empty: no progress is saved
  bool faults = true;
  bool verbose = false;

  void take(const std::string& range);  // "A..B" or "A"; throws UsageError
};

struct SeedResult {
  uint64_t seed = 0;
  uint64_t digest = 0;
  Tally tally;
  std::optional<std::string> failure;  // the error, and how to reproduce it
};

SeedResult run_seed(uint64_t seed, const SeedRuns& runs);
// Prints progress and results. False at the first seed that fails.
bool run_seeds(const SeedRuns& runs);

}  // namespace fasa::testing
