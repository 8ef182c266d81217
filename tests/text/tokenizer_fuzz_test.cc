// The fuzz target over its seed corpus, every prefix of each seed, and fixed pseudo-random changes.
#include "tests/support/fuzz_corpus.h"

namespace fasa::testing {
namespace {

TEST(TokenizerFuzz, SeedsAndTheirPrefixes) {
  const auto seeds = fuzz_seeds("text/corpus/tokenizer");
  ASSERT_GE(seeds.size(), 6u);
  fuzz_prefixes(seeds);
}

TEST(TokenizerFuzz, Changes) { fuzz_changes(fuzz_seeds("text/corpus/tokenizer"), 300); }

}  // namespace
}  // namespace fasa::testing
