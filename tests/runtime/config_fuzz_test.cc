// The fuzz target over its seed corpus, every prefix of each seed, and fixed pseudo-random changes.
#include "tests/support/fuzz_corpus.h"

namespace fasa::testing {
namespace {

TEST(ConfigFuzz, SeedsAndTheirPrefixes) {
  const auto seeds = fuzz_seeds("runtime/corpus/config");
  ASSERT_GE(seeds.size(), 5u);
  fuzz_prefixes(seeds);
}

TEST(ConfigFuzz, Changes) { fuzz_changes(fuzz_seeds("runtime/corpus/config"), 300); }

}  // namespace
}  // namespace fasa::testing
