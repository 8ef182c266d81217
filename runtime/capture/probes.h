// Probes make any text look back: random strings planted in it are repeated after it, and the
// repeats are queries that a model with induction heads answers from far away. No task data needed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fasa {

struct ProbeOptions {
  int queries = 32;  // wanted at the repeats
  int length = 16;   // tokens of a string
  uint64_t seed = 1;
};

struct ProbedText {
  std::vector<int32_t> ids;        // at most as many as asked for
  int64_t text_end = 0;            // the repeats begin here
  std::vector<int32_t> positions;  // of the queries at the repeats, rising
};

// The beginning of `text` with strings of random tokens planted evenly spread, and behind it their
// repeats in another order: `tokens` in all, or fewer where the text is short. The strings are
// drawn from the distinct tokens of the text, which every tokenizer allows and no special token is
// among. At most half of the tokens are strings and repeats; a text too short for one string stays
// as it is, without queries.
ProbedText plant_probes(std::span<const int32_t> text, int64_t tokens, const ProbeOptions& options);

}  // namespace fasa
