// Compound agreement: the overlap of a head's own best tokens with those of the summed scores of a
// few frequency chunks and of other methods (the paper's Table 1).
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
  std::vector<std::string> rows;  // methods
  // [rows][windows]: mean share of the K best; below 0 where a query sees no more than K tokens.
  std::vector<std::vector<double>> share;
};

// Rows: random (its expectation), streaming (8 sinks and the newest), snapkv (the last 32 queries'
// weights, max-pooled over 7, and their tokens), a few FCs of each query head (1/8, 5/32, 3/16,
// 7/32 and 1/4 of all: 8 to 16 of 64), and all FCs in int2. FCs are ranked by their CA over the
// even anchors, if `table` was made from those; agreement is measured on the odd anchors.
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

// The tokens that SnapKV keeps for an anchor's query.
class SnapkvChoice {
 public:
  SnapkvChoice(const HeadSamples& samples, size_t anchor, int head);
  TokenSet tokens(int64_t k) const;

 private:
  int64_t visible_;
  int64_t window_;  // number of observing queries, the anchor's last; their tokens are always kept
  std::vector<float> merits_;  // of the tokens before the window
};
// The first 8 tokens and the newest, k of `tokens` in all.
TokenSet streaming_tokens(int64_t tokens, int64_t k);

}  // namespace fasa
