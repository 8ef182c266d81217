// The fuzz target over its seed corpus, every prefix of each seed, and fixed pseudo-random changes.
#include "tests/support/fuzz_corpus.h"

namespace fasa::testing {
namespace {

TEST(SafetensorsFuzz, SeedsAndTheirPrefixes) {
  const auto seeds = fuzz_seeds("llm/corpus/safetensors");
  ASSERT_GE(seeds.size(), 6u);
  fuzz_prefixes(seeds);
}

TEST(SafetensorsFuzz, Changes) { fuzz_changes(fuzz_seeds("llm/corpus/safetensors"), 300); }

}  // namespace
}  // namespace fasa::testing
