// Selects the tokens that a decode step attends to by a baseline instead of the fused kernel. Each
// is a small class in a file of its own, listed in selection_table.cc. They run on the cpu device,
// where rows, slices and host memory are one tier. Attention reads their sets through the same
// kernel as any other set.
//
// Rules for all: a set has at most the layer's budget of tokens; sinks and recent tokens
// (selection.sinks, selection.recent) are always in it; contexts within the budget are selected
// whole.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/params.h"
#include "kernels/select_plan.h"
#include "scheduler/selection/eviction.h"
#include "scheduler/selection/token_scores.h"

namespace fasa {

// One set of a decode step: for a KV head with all its query heads.
struct HeadStep {
  const SelectParams& params;
  int sequence = 0;  // index in the step
  int kv_head = 0;
  int query_heads = 0;
  float scale = 1;  // factor of q·k before the softmax
  SelectPlan plan;
  std::vector<float> queries;  // [query_heads][key_dim]

  const SequenceDesc& tokens() const { return params.step.sequences[sequence]; }
  int key_dim() const { return params.step.layout.row.key_dim; }
  const float* query(int index) const { return queries.data() + int64_t{index} * key_dim(); }
};

class TokenSelection {
 public:
  virtual ~TokenSelection() = default;
  // Writes the set, ascending, and returns its size. Called for several heads concurrently. `kept`:
  // the head's cached tokens if the selection evicts, else null.
  virtual int32_t choose(const HeadStep& step, const std::vector<int32_t>* kept,
                         int32_t* set) const = 0;
  // The memory of a head; null if a step depends only on its own query and the keys.
  virtual std::unique_ptr<EvictionPolicy> make_policy() const { return nullptr; }
};

// Selects by a score per token, without memory.
class ScoredSelection : public TokenSelection {
 public:
  int32_t choose(const HeadStep& step, const std::vector<int32_t>* kept,
                 int32_t* set) const override;

 protected:
  // Scores of the visible tokens, by position.
  virtual TokenScores score(const HeadStep& step) const = 0;
};

// Selects the tokens that its policy has not evicted. Evicted tokens never return.
class EvictingSelection : public TokenSelection {
 public:
  int32_t choose(const HeadStep& step, const std::vector<int32_t>* kept,
                 int32_t* set) const override;
};

}  // namespace fasa
