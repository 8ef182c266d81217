// The fuzz target over its seed corpus, every prefix of each seed, and fixed pseudo-random changes.
#include "tests/llm/fuzz_corpus.h"

namespace fasa::llm_test {
namespace {

TEST(SafetensorsFuzz, SeedsAndTheirPrefixes) {
  const auto seeds = fuzz_seeds("safetensors");
  ASSERT_GE(seeds.size(), 6u);
  fuzz_prefixes(seeds);
}

TEST(SafetensorsFuzz, Changes) { fuzz_changes(fuzz_seeds("safetensors"), 300); }

}  // namespace
}  // namespace fasa::llm_test
