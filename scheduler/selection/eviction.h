// Selections that evict: their memory of one sequence, and their policies.
//
// A step at position p first evicts, judged by earlier queries, until the head's cached tokens (p
// among them) fit the budget. It attends to those; then its query is observed. Prefill attends to
// everything and evicts nothing. The cached set is therefore a function of the queries, keys and
// modes of positions [0, p). These are recorded, and a sequence that was truncated or forked inside
// replays its record. The result equals that of a sequence with the same tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/params.h"
#include "scheduler/selection/key_reader.h"

namespace fasa {

// How the query of a position was processed.
enum class Seen : uint8_t { kNothing, kPrefill, kDecode };  // kNothing: appended, never attended

// Queries of one sequence and layer by position, f32, [tokens][query_heads][key_dim]. Host memory
// outside all budgets: 4 / (2 x dtype bytes) x GQA group size times the size of keys and values.
struct QueryRecord {
  std::vector<float> queries;
  std::vector<Seen> seen;  // [tokens]
};

// One head of the sets, as policies see it.
struct EvictionHead {
  const QueryRecord& record;
  KeyReader& keys;
  int first_query_head = 0;  // within the record
  int query_heads = 0;       // that share this head
  int all_query_heads = 0;   // in the layer
  float scale = 1;
  int window = 0;  // of the layer, 0 = none

  bool observed(int position) const {
    return record.seen[static_cast<size_t>(position)] != Seen::kNothing;
  }
  const float* query(int position, int index) const {
    const int64_t row = int64_t{position} * all_query_heads + first_query_head + index;
    return record.queries.data() + row * keys.dim();
  }
  // The first position that a query sees.
  int first_visible(int position) const {
    return window > 0 ? std::max(0, position + 1 - window) : 0;
  }
};

// Softmax weights of a query over tokens.
void attention_weights(EvictionHead& head, const float* query, std::span<const int32_t> tokens,
                       std::span<float> weights);

// The eviction policy and memory of one head.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual std::unique_ptr<EvictionPolicy> clone() const = 0;
  // Called after the queries of `position` attended to `tokens` (ascending, `position` last).
  virtual void observe(EvictionHead& head, int position, std::span<const int32_t> tokens) {
    static_cast<void>(head);
    static_cast<void>(position);
    static_cast<void>(tokens);
  }
  // Writes the worth of each token in `kept` (ascending, `position` last): the lowest are evicted,
  // among equals the highest position first. Must not use the queries of `position`.
  virtual void judge(EvictionHead& head, int position, int budget, std::span<const int32_t> kept,
                     std::span<float> merits) = 0;
};

// Number of newest tokens that a policy always keeps: `most`, but at most half of the budget, so
// that some tokens compete at every budget.
inline int protected_tokens(int most, int budget) {
  return std::max(1, std::min(most, budget / 2));
}

}  // namespace fasa
