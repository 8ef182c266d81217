#include "runtime/synthetic/trace_tiling.h"

#include <algorithm>
#include <bit>

namespace fasa {
namespace {

// Splitmix64: the same number for a position in every step, layer and head.
uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

// Where the positions that are taken from a stretch begin in it.
int64_t offset_in(int64_t length, uint64_t hash) {
  return static_cast<int64_t>((hash >> 20) % static_cast<uint64_t>(length));
}

// A set of positions that grows up to a given size.
class PositionSet {
 public:
  PositionSet(const SelectPlan& plan, std::vector<uint64_t>& words) : plan_(plan), words_(words) {
    words_.assign(static_cast<size_t>(plan.visible() + 63) / 64, 0);
    for (int at = plan.first; at < plan.sinks_end; ++at) insert(at);
    for (int at = plan.recent_begin; at < plan.end; ++at) insert(at);
  }
  bool full() const { return size_ >= plan_.budget; }
  // Adds a position if it is eligible and not in the set yet.
  void add(int64_t position) {
    if (position >= plan_.sinks_end && position < plan_.recent_begin && !full()) {
      insert(static_cast<int>(position));
    }
  }
  void write(int32_t* set) const {
    for (size_t word = 0; word < words_.size(); ++word) {
      for (uint64_t bits = words_[word]; bits != 0; bits &= bits - 1) {
        *set++ = plan_.first + static_cast<int32_t>(word * 64) + std::countr_zero(bits);
      }
    }
  }

 private:
  void insert(int position) {
    const auto at = static_cast<size_t>(position - plan_.first);
    const uint64_t bit = uint64_t{1} << (at % 64);
    size_ += (words_[at / 64] & bit) == 0;
    words_[at / 64] |= bit;
  }
  const SelectPlan& plan_;
  std::vector<uint64_t>& words_;
  int size_ = 0;
};

}  // namespace

TraceTiling::TraceTiling(const SelectionTrace& trace, int64_t tokens, uint64_t seed)
    : trace_(trace), tokens_(tokens), seed_(seed) {}

uint64_t TraceTiling::hash_of(int32_t position) const {
  return mix(seed_ * 0x10001 + static_cast<uint64_t>(position));
}

int64_t TraceTiling::stretch_begin(int64_t position) const {
  return position * tokens_ / trace_.context(trace_.steps() - 1);
}

// Later head groups repeat the layers that have a prediction: the first has no layer before it.
int TraceTiling::trace_layer(int layer) const {
  const int layers = trace_.shape().layers;
  if (layer < layers || layers == 1) return layer % layers;
  return 1 + (layer - layers) % (layers - 1);
}

int TraceTiling::trace_step(const TraceSetId& id) const {
  const int steps = trace_.steps();
  if (steps == 1) return 0;
  // Runs through the trace forwards, then backwards, so that neighbouring steps stay neighbours.
  const int layers = trace_.shape().layers;
  const int layer_group = id.layer < layers ? 0 : 1 + (id.layer - layers) / std::max(1, layers - 1);
  const int head_group = id.kv_head / trace_.shape().kv_heads;
  const int64_t offset = int64_t{layer_group} * 7 + int64_t{head_group} * 13 +
                         int64_t{id.sequence} * 29 + static_cast<int64_t>(seed_ % 1024);
  const int64_t period = 2 * (steps - 1);
  const int64_t at = (id.step + offset) % period;
  return static_cast<int>(at < steps ? at : period - at);
}

void TraceTiling::fill(int trace_step, std::span<const int32_t> source, const SelectPlan& plan,
                       int32_t* set) const {
  struct Item {
    uint64_t rank;
    int64_t begin, end;  // the stretch
  };
  // These vectors only grow: the streams' threads are reused.
  thread_local std::vector<uint64_t> words;
  thread_local std::vector<Item> items;
  PositionSet result(plan, words);
  items.clear();
  const int competing_end = trace_.context(trace_step) - trace_.shape().recent;
  for (const int32_t position : source) {
    if (position < trace_.shape().sinks || position >= competing_end) continue;
    items.push_back({hash_of(position), stretch_begin(position), stretch_begin(position + 1)});
  }
  // Each round takes one more position of every stretch. An incomplete round takes the same
  // positions in every step: those of the lowest rank.
  std::sort(items.begin(), items.end(),
            [](const Item& a, const Item& b) { return a.rank < b.rank; });
  const int rounds = items.empty() ? 0 : 8 + 2 * plan.need / static_cast<int>(items.size());
  for (int round = 0; round < rounds && !result.full(); ++round) {
    for (const Item& item : items) {
      const int64_t length = std::max<int64_t>(1, item.end - item.begin);
      const int64_t offset = offset_in(length, item.rank);
      // At the end of its stretch it continues into the next one.
      result.add(item.begin + (round < length ? (offset + round) % length : round));
    }
  }
  for (int at = plan.recent_begin - 1; at >= plan.sinks_end && !result.full(); --at) result.add(at);
  result.write(set);
}

void TraceTiling::true_set(const TraceSetId& id, const SelectPlan& plan, int32_t* set) const {
  const int step = trace_step(id);
  fill(step, trace_.true_set(step, trace_layer(id.layer), id.kv_head % trace_.shape().kv_heads),
       plan, set);
}

int32_t TraceTiling::runners_up(const TraceSetId& id, const SelectPlan& plan,
                                std::span<const int32_t> set, int32_t* out) const {
  const int step = trace_step(id);
  const int head = id.kv_head % trace_.shape().kv_heads;
  const auto source = trace_.runners_up(step, trace_layer(id.layer), head);
  // As many positions of each stretch as the set has of its own.
  const int each = (plan.need + trace_.shape().set_ranked() - 1) / trace_.shape().set_ranked();
  int32_t size = 0;
  for (const int32_t position : source) {
    const int64_t begin = stretch_begin(position);
    const int64_t length = std::max<int64_t>(1, stretch_begin(position + 1) - begin);
    const int64_t offset = offset_in(length, hash_of(position));
    for (int round = 0; round < each && size < plan.runners_up; ++round) {
      const int64_t at = begin + (round < length ? (offset + round) % length : round);
      if (at < plan.sinks_end || at >= plan.recent_begin) continue;
      const auto found = static_cast<int32_t>(at);
      if (!std::ranges::binary_search(set, found)) out[size++] = found;
    }
  }
  return size;
}

}  // namespace fasa
