// Selections that evict: what they remember of one sequence, and what decides.
//
// A step at position p first evicts, by what earlier queries saw, until the head's kept tokens (p
// among them) fit the budget; it attends to those; then its query is observed. Prefill attends to
// everything and evicts nothing. So what is kept is a function of the queries, keys and modes of
// positions [0, p): these are recorded, and a sequence that was cut or forked inside works its
// record through again. It has then evicted what a sequence of the same tokens would have.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/params.h"
#include "scheduler/selection/key_reader.h"

namespace fasa {

// What brought a position's query.
enum class Seen : uint8_t { kNothing, kPrefill, kDecode };  // kNothing: appended, never attended

// Queries of one sequence and layer by position, f32, [tokens][query_heads][key_dim]. Host memory
// that no budget counts: as much as 4 / (2 x dtype) x group times the keys and values.
struct QueryRecord {
  std::vector<float> queries;
  std::vector<Seen> seen;  // [tokens]
};

// One head of the sets while it is worked on.
struct EvictionHead {
  const QueryRecord& record;
  KeyReader& keys;
  int first_query_head = 0;  // of the record's
  int query_heads = 0;       // of this head
  int all_query_heads = 0;   // of the layer
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

// The memory of one head.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual std::unique_ptr<EvictionPolicy> clone() const = 0;
  // The queries of `position` attended to `tokens`, ascending, `position` the last.
  virtual void observe(EvictionHead& head, int position, std::span<const int32_t> tokens) {
    static_cast<void>(head);
    static_cast<void>(position);
    static_cast<void>(tokens);
  }
  // What keeping each of `kept` (ascending, `position` the last) is worth: those with the least go,
  // the highest position first among equals. The queries of `position` are not to be looked at.
  virtual void judge(EvictionHead& head, int position, int budget, std::span<const int32_t> kept,
                     std::span<float> merits) = 0;
};

// The newest tokens that a policy keeps whatever their merit: `most` of them, but never more than
// half of the budget, so that there is something to choose by merit at every budget.
inline int protected_tokens(int most, int budget) {
  return std::max(1, std::min(most, budget / 2));
}

}  // namespace fasa
