// One sampled query of a GQA group: its attention over the tokens, and the attention that a
// selection by some of the frequency chunks captures.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/calibrate/calibrate_samples.h"
#include "runtime/calibrate/calibrate_top_k.h"

namespace fasa {

// Score rows of one query, [group][visible tokens], rows score_stride() apart. Empty = no FC added
// yet: zero, or the ALiBi term.
using ScoreRows = AlignedVector<float>;
inline int64_t score_stride(int64_t tokens) { return (tokens + 15) / 16 * 16; }

// Scratch of one thread, reused for each query.
struct QueryScratch {
  TopKSelector selector;
  ScoreRows scores;
  AlignedVector<int32_t> deficits;         // [tokens], for the group
  std::vector<float> first, second, tops;  // [group]
};

// The tokens that are always selected (sinks, recent window), and the total number selected.
struct SelectionRule {
  int64_t window = 256;
  int64_t sinks = 4;
  int64_t recent = 16;
};

class CalibrationQuery {
 public:
  // `samples` must outlive it. Computes the exact softmax of each query head. `truth`, if not null,
  // receives the true scores.
  CalibrationQuery(const HeadSamples& samples, size_t index, const SelectionRule& rule,
                   QueryScratch& scratch, ScoreRows* truth = nullptr);

  // Adds this FC's scores to `rows`.
  void add_chunk(int chunk, ScoreRows& rows, QueryScratch& scratch) const;
  // The group's attention on the distant tokens that are selected by `rows` plus one more FC (-1:
  // none), in addition to the protected tokens.
  double captured_distant(const ScoreRows& rows, int chunk, QueryScratch& scratch) const;

  // [group][chunks]: contextual agreement of each FC with the true scores, per query head.
  std::vector<double> agreement(const ScoreRows& truth, QueryScratch& scratch) const;
  double oracle_distant() const { return oracle_distant_; }

 private:
  int64_t tokens() const { return end_ - first_; }
  int64_t stride() const { return score_stride(tokens()); }
  size_t row_floats() const { return static_cast<size_t>(stride() * samples_->gqa_group); }
  // out = rows + the FC's scores; scratch.tops = the heads' maxima.
  void score(const ScoreRows& rows, int chunk, float* out, QueryScratch& scratch) const;
  // scratch.deficits = the group's deficits for the rows plus an FC, or for the rows alone.
  void combine(const ScoreRows& rows, int chunk, QueryScratch& scratch) const;
  ScoreRows true_scores(QueryScratch& scratch) const;
  ScoreRows alibi_rows() const;
  ScoreRows capped_rows(const ScoreRows& rows) const;  // empty if scores have no cap

  const HeadSamples* samples_;
  const cpu::RankBodies* bodies_;
  size_t index_;
  SelectionRule rule_;
  int64_t first_, end_;                  // of the visible tokens
  int64_t distant_first_, distant_end_;  // of the distant tokens, relative to first_
  AlignedVector<float> attention_;       // [visible]: sum over the group's softmaxes
  ScoreRows alibi_;                      // empty = none
  double oracle_distant_ = 0;            // distant attention that the true scores capture
};

}  // namespace fasa
