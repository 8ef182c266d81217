// Which tokens a decode step attends to, for whatever the fused kernels do not do: baselines, and
// variants of FASA for comparison. One small class each, in a file of its own, named in
// selection_table.cc. They run on the cpu device, where rows, slices and host are one tier, and
// attention then reads their sets through the same kernel as any other.
//
// The frame is the same for all: a set has at most the layer's budget of tokens, sinks and recent
// (selection.sinks, selection.recent) always among them; what fits the budget is taken whole.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/params.h"
#include "kernels/select_plan.h"
#include "scheduler/selection/eviction.h"
#include "scheduler/selection/selection_options.h"
#include "scheduler/selection/token_scores.h"

namespace fasa {

// One set of a decode step: of a KV head with all of its query heads, or of one query head.
struct HeadStep {
  const SelectParams& params;
  int sequence = 0;  // in the step
  int head = 0;      // of the sets
  int kv_head = 0;
  int first_query_head = 0;  // of the layer
  int query_heads = 0;
  float scale = 1;  // of q·k before the softmax
  SelectPlan plan;
  std::vector<float> queries;  // [query_heads][key_dim]

  const SequenceDesc& tokens() const { return params.step.sequences[sequence]; }
  int key_dim() const { return params.step.layout.row.key_dim; }
  const float* query(int index) const { return queries.data() + int64_t{index} * key_dim(); }
};

class TokenSelection {
 public:
  virtual ~TokenSelection() = default;
  // Writes the set, ascending, and returns its size. Several heads at a time. `kept`: what the head
  // has kept, of selections that evict; others get null.
  virtual int32_t choose(const HeadStep& step, const std::vector<int32_t>* kept,
                         int32_t* set) const = 0;
  virtual bool reads_slices() const { return false; }
  // What a head remembers, null where a step depends on its own query and the keys alone.
  virtual std::unique_ptr<EvictionPolicy> make_policy() const { return nullptr; }
};

// Chooses by a score per token, with no memory.
class ScoredSelection : public TokenSelection {
 public:
  int32_t choose(const HeadStep& step, const std::vector<int32_t>* kept,
                 int32_t* set) const override;

 protected:
  // Of the visible tokens, in their order.
  virtual TokenScores score(const HeadStep& step) const = 0;
};

// Keeps what its policy does not evict. What it evicted never comes back.
class EvictingSelection : public TokenSelection {
 public:
  int32_t choose(const HeadStep& step, const std::vector<int32_t>* kept,
                 int32_t* set) const override;
};

}  // namespace fasa
