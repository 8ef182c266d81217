// Contextual agreement: how far a single frequency chunk ranks the tokens as its whole head does.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/geometry.h"
#include "runtime/calibrate/calibrate_samples.h"

namespace fasa {

// Mean CA, [layers][query_heads][chunks], and of each tenth of the queries apart.
class AgreementTable {
 public:
  static constexpr int kStretches = 10;
  AgreementTable(int layers, int query_heads, int chunks);

  int layers() const { return layers_; }
  int query_heads() const { return query_heads_; }
  int chunks() const { return chunks_; }
  // Adds the agreement of each FC with its head at `window` tokens, for all heads of a group, which
  // begins at query head `first_head`.
  void add(const HeadSamples& samples, std::span<const size_t> anchors, int window, int layer,
           int first_head);
  double at(int layer, int head, int chunk) const;                   // of all queries
  double over(int layer, int head, int chunk, int stretches) const;  // of the first stretches

 private:
  size_t index(int layer, int head, int chunk, int stretch) const;
  int layers_, query_heads_, chunks_;
  std::vector<double> sums_;                  // [layers][query_heads][chunks][stretches]
  std::array<int64_t, kStretches> counts_{};  // queries of each
};

// The FCs of a KV head (the mean of its `group` query heads), best first: by the first `stretches`
// tenths of the queries.
std::vector<int> rank_by_agreement(const AgreementTable& table, int layer, int kv_head, int group,
                                   int stretches = AgreementTable::kStretches);

// Of the first `count` FCs of every KV head, the share that two rankings have in common.
double map_overlap(const AgreementTable& a, int a_stretches, const AgreementTable& b,
                   int b_stretches, int group, int count);

// How a head's five fifths of its best tokens, the most important first, are found by other
// rankings of the same tokens: [fifth] shares.
using Fifths = std::array<double, 5>;
struct FifthsTable {
  Fifths dominant{};  // by the FC of the highest CA of each head
  Fifths others{};    // by an FC beyond the first quarter, the mean of all
};
// `table` says which FC is which. The mean over all heads of the group and the anchors.
FifthsTable find_fifths(const HeadSamples& samples, std::span<const size_t> anchors,
                        const AgreementTable& table, int window, int layer, int first_head);

}  // namespace fasa
