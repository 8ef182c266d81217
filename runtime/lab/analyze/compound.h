// Compound agreement: what the summed scores of a few frequency chunks, and other ways to choose,
// have in common with a head's own best tokens (the paper's Table 1).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/calibrate/calibrate_samples.h"
#include "runtime/lab/analyze/agreement.h"
#include "runtime/lab/analyze/head_query.h"

namespace fasa {

struct CompoundTable {
  std::vector<int64_t> windows;   // K
  std::vector<std::string> rows;  // ways to choose
  // [rows][windows]: mean share of the K best; below 0 where a query sees no more than K tokens.
  std::vector<std::vector<double>> share;
};

// Rows: random (its expectation), streaming (8 sinks and the newest), snapkv (the last 32 queries'
// weights, max-pooled over 7, and their tokens), a few FCs of each query head (1/8, 5/32, 3/16,
// 7/32 and 1/4 of all: 8 to 16 of 64), and all FCs in int2. FCs are ranked by their CA over the
// even anchors, `table`'s as long as it was made from those; agreement is measured on the odd ones.
class Compound {
 public:
  Compound(int chunks, std::vector<int64_t> windows);

  // One layer and KV head. `int2`: the same samples with the keys that an int2 slice of all FCs
  // holds. `ranked`: [group], the FCs of each query head, best first.
  void add(const HeadSamples& samples, const HeadSamples& int2, std::span<const size_t> anchors,
           std::span<const std::vector<int>> ranked);
  CompoundTable table() const;

 private:
  std::vector<int64_t> windows_;
  std::vector<int> counts_;  // of FCs
  std::vector<std::string> rows_;
  std::vector<std::vector<double>> sums_;  // [rows][windows]
  std::vector<int64_t> queries_;           // [windows]
};

// What SnapKV keeps of the tokens that an anchor's query sees.
class SnapkvChoice {
 public:
  SnapkvChoice(const HeadSamples& samples, size_t anchor, int head);
  TokenSet tokens(int64_t k) const;

 private:
  int64_t visible_;
  int64_t window_;             // queries that look, the anchor's the last; their tokens are kept
  std::vector<float> merits_;  // of the tokens before those
};
// The first 8 tokens and the newest, k of `tokens` in all.
TokenSet streaming_tokens(int64_t tokens, int64_t k);

}  // namespace fasa
