// The fuzz target over its seed corpus, every prefix of each seed, and fixed pseudo-random changes.
#include "tests/support/fuzz_corpus.h"

namespace fasa::testing {
namespace {

TEST(TemplateFuzz, SeedsAndTheirPrefixes) {
  const auto seeds = fuzz_seeds("template/corpus/template");
  ASSERT_GE(seeds.size(), 6u);
  fuzz_prefixes(seeds);
}

TEST(TemplateFuzz, Changes) { fuzz_changes(fuzz_seeds("template/corpus/template"), 400); }

}  // namespace
}  // namespace fasa::testing
