// The share of distant attention that a slice format keeps: bits x frequency chunks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/slice_format.h"
#include "runtime/calibrate/calibrate_samples.h"

namespace fasa {

struct SliceChoiceAttention {
  SliceDType dtype;
  int chunks;
  double bytes = 0;  // per token and KV head, parameters included
  // [kind of query]: distant attention captured, and by the true scores.
  std::vector<double> captured, oracle;
  double kept(size_t kind) const { return oracle[kind] > 0 ? captured[kind] / oracle[kind] : 1; }
};

// bf16, int8, int4 and int2, each with an eighth, a quarter, a half, three quarters and all of the
// FCs.
std::vector<SliceChoiceAttention> slice_choices(int chunks, size_t kinds);

// Adds the attention that queries of one KV head capture: `queries`, [kind] indices of queries.
// `ranked`: the head's FCs, best first. Selects `window` tokens, 4 sinks and 16 recent ones among
// them.
void add_slice_attention(const HeadSamples& samples, std::span<const std::vector<size_t>> queries,
                         std::span<const int> ranked, int window,
                         std::vector<SliceChoiceAttention>& sums);

}  // namespace fasa
