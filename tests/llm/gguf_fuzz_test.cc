// The fuzz target over its seed corpus, every prefix of each seed, and fixed pseudo-random changes.
#include "tests/support/fuzz_corpus.h"

namespace fasa::testing {
namespace {

TEST(GgufFuzz, SeedsAndTheirPrefixes) {
  const auto seeds = fuzz_seeds("llm/corpus/gguf");
  ASSERT_GE(seeds.size(), 4u);
  fuzz_prefixes(seeds);
}

TEST(GgufFuzz, Changes) { fuzz_changes(fuzz_seeds("llm/corpus/gguf"), 300); }

}  // namespace
}  // namespace fasa::testing
