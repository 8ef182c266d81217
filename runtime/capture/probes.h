// Probes give any text long-range queries: random strings are planted in it and repeated after it.
// A model with induction heads attends from the repeats to the strings. No task data needed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fasa {

struct ProbeOptions {
  int queries = 32;  // requested number of queries at the repeats
  int length = 16;   // tokens of each string
  uint64_t seed = 1;
};

struct ProbedText {
  std::vector<int32_t> ids;        // at most as many as requested
  int64_t text_end = 0;            // the repeats begin here
  std::vector<int32_t> positions;  // of the queries, rising
};

// The beginning of `text` with random strings planted at even distances, then their repeats in
// another order: `tokens` in all, or fewer if the text is short. Strings are drawn from the text's
// distinct tokens, so they contain no special tokens. Strings and repeats take at most half of the
// tokens. A text too short for one string is unchanged and has no queries.
ProbedText plant_probes(std::span<const int32_t> text, int64_t tokens, const ProbeOptions& options);

}  // namespace fasa
