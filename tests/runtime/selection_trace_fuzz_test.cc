// The fuzz target over its seed corpus, every prefix of each seed, and fixed pseudo-random changes.
#include "tests/support/fuzz_corpus.h"

namespace fasa::testing {
namespace {

TEST(SelectionTraceFuzz, SeedsAndTheirPrefixes) {
  const auto seeds = fuzz_seeds("runtime/corpus/selection_trace");
  ASSERT_GE(seeds.size(), 5u);
  fuzz_prefixes(seeds);
}

TEST(SelectionTraceFuzz, Changes) {
  fuzz_changes(fuzz_seeds("runtime/corpus/selection_trace"), 300);
}

}  // namespace
}  // namespace fasa::testing
