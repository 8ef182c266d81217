// One query of one query head over a text: its scores, by all or some frequency chunks, and the
// best tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/calibrate/calibrate_samples.h"
#include "runtime/calibrate/calibrate_top_k.h"

namespace fasa {

// One byte a token: 1 for members.
using TokenSet = std::vector<uint8_t>;

// The k best of a row; ties go to the lower index; NaN ranks last.
TokenSet best_tokens(std::span<const float> scores, int64_t k);
int64_t common(const TokenSet& a, const TokenSet& b);

class HeadQuery {
 public:
  // `samples` must outlive it. `query`: index of a query; `head`: index within the group.
  HeadQuery(const HeadSamples& samples, size_t query, int head)
      : samples_(samples), query_(query), head_(head) {}

  int64_t tokens() const { return samples_.visible_end(query_) - samples_.visible_first(query_); }
  // Raw scores of the tokens that the query attends to.
  std::vector<float> scores() const;
  std::vector<float> scores(std::span<const int> chunks) const;
  // Softmax of the scaled scores.
  std::vector<float> weights() const;

 private:
  void add(int chunk, std::vector<float>& row) const;
  std::vector<float> empty_row() const;

  const HeadSamples& samples_;
  size_t query_;
  int head_;
};

}  // namespace fasa
