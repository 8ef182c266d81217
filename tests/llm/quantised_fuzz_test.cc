// The fuzz target over its seed corpus and fixed pseudo-random changes.
#include "tests/support/fuzz_corpus.h"

namespace fasa::testing {
namespace {

TEST(QuantisedFuzz, Seeds) {
  const auto seeds = fuzz_seeds("llm/corpus/quantised");
  ASSERT_GE(seeds.size(), 4u);
  for (const std::string& seed : seeds) fuzz_one(seed);
}

TEST(QuantisedFuzz, Changes) { fuzz_changes(fuzz_seeds("llm/corpus/quantised"), 60); }

}  // namespace
}  // namespace fasa::testing
