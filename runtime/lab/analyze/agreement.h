// Contextual agreement (CA): how closely one frequency chunk ranks tokens as its whole head does.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/base/geometry.h"
#include "runtime/calibrate/calibrate_samples.h"

namespace fasa {

// Mean CA, [layers][query_heads][chunks], also for each tenth of the queries.
class AgreementTable {
 public:
  static constexpr int kStretches = 10;
  AgreementTable(int layers, int query_heads, int chunks);

  int layers() const { return layers_; }
  int query_heads() const { return query_heads_; }
  int chunks() const { return chunks_; }
  // Adds each FC's agreement with its head at `window` tokens, for all heads of the GQA group that
  // begins at query head `first_head`.
  void add(const HeadSamples& samples, int window, int layer, int first_head);
  double at(int layer, int head, int chunk) const;                   // all queries
  double over(int layer, int head, int chunk, int stretches) const;  // of the first stretches

 private:
  size_t index(int layer, int head, int chunk, int stretch) const;
  int layers_, query_heads_, chunks_;
  std::vector<double> sums_;                  // [layers][query_heads][chunks][stretches]
  std::array<int64_t, kStretches> counts_{};  // queries of each
};

// The FCs of a KV head, best first, by the mean of its `group` query heads over the first
// `stretches` tenths of the queries.
std::vector<int> rank_by_agreement(const AgreementTable& table, int layer, int kv_head, int group,
                                   int stretches = AgreementTable::kStretches);

// The share of the first `count` FCs of every KV head that two rankings have in common.
double map_overlap(const AgreementTable& a, int a_stretches, const AgreementTable& b,
                   int b_stretches, int group, int count);

}  // namespace fasa
