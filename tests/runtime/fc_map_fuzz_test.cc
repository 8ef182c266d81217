// The fuzz target over its seed corpus, every prefix of each seed, and fixed pseudo-random changes.
#include "tests/support/fuzz_corpus.h"

namespace fasa::testing {
namespace {

TEST(FcMapFuzz, SeedsAndTheirPrefixes) {
  const auto seeds = fuzz_seeds("runtime/corpus/fc_map");
  ASSERT_GE(seeds.size(), 5u);
  fuzz_prefixes(seeds);
}

TEST(FcMapFuzz, Changes) { fuzz_changes(fuzz_seeds("runtime/corpus/fc_map"), 200); }

}  // namespace
}  // namespace fasa::testing
