// Assigns hot slots and fetches to predictions. Per (sequence, kv_head), O(predictions + hot rows).

#include <algorithm>
#include <atomic>

#include "kernels/cpu/hot_index.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/rows/row_scratch.h"
#include "kernels/replacement.h"
#include "runtime/base/parallel.h"

namespace fasa::cpu {
namespace {

class ClaimSlotsHead {
 public:
  ClaimSlotsHead(const ClaimSlotsParams& params, int sequence, int head)
      : params_(params),
        layout_(params.step.layout),
        sequence_(params.step.sequences[sequence]),
        head_(head),
        index_(int64_t{sequence} * layout_.kv_heads + head),
        is_first_(sequence % params.step.together == 0),
        slots_(HotSlots::of(layout_, sequence_.hot_table, params.step.attending_layer(), head,
                            sequence_.hot_rows)) {}

  // Returns the number of rows to fetch.
  int run() {
    if (sequence_.mode != StepMode::kDecode || slots_.count == 0 || !is_first_) return 0;
    const int room = params_.max_rows - predicted_in_this_step();
    if (room <= 0) return 0;
    const int predictions = params_.predictions(index_);
    const int64_t buckets = HotIndex::bucket_count(slots_.count + predictions);
    // Buckets, candidates, victims.
    auto* scratch = reinterpret_cast<int32_t*>(
        thread_scratch((buckets + predictions + slots_.count) * int64_t{sizeof(int32_t)}));
    candidates_ = scratch + buckets;
    int32_t* victims = candidates_ + predictions;

    HotIndex index(slots_, predictions, scratch);
    const int32_t* set = params_.sets + index_ * params_.selected_capacity;
    for (int i = 0; i < predictions; ++i) consider(index, set[i]);
    const int wanted = std::min(room, count_);
    const int chosen = choose_victims(slots_, params_.step_number.read(), wanted, victims);
    for (int slot = 0; slot < slots_.count; ++slot) {
      if (slots_.positions[slot] >= 0) {
        slots_.last_uses[slot] = without_staying(slots_.last_uses[slot]);
      }
    }
    for (int i = 0; i < chosen; ++i) claim(victims[i], i, chosen);
    return chosen;
  }

 private:
  int predicted_in_this_step() const {
    const int32_t last_use = predicted_use(params_.step_number.read());
    int predicted = 0;
    for (int slot = 0; slot < slots_.count; ++slot) {
      predicted += slots_.positions[slot] >= 0 && slots_.last_uses[slot] == last_use ? 1 : 0;
    }
    return predicted;
  }

  void consider(HotIndex& index, int32_t position) {
    if (position < first_visible(sequence_.start, params_.window) || position >= sequence_.start ||
        sequence_.is_protected(layout_, position) ||
        sequence_.device_row_block(position / kPageTokens) != nullptr) {
      return;
    }
    const int32_t found = index.find(position);
    if (found < 0) {
      candidates_[count_] = position;
      index.add(candidates_, count_++);
    } else if (found < slots_.count) {
      int32_t& last_use = slots_.last_uses[found];
      const bool renewed = params_.runners_up && is_prediction(last_use);
      last_use = staying(renewed ? predicted_use(params_.step_number.read()) : last_use);
    }
  }

  // If there are more candidates than slots, subsamples them evenly, or takes the first.
  void claim(int32_t slot, int i, int chosen) {
    const int32_t position = candidates_[params_.runners_up ? i : int64_t{i} * count_ / chosen];
    slots_.positions[slot] = position;
    slots_.last_uses[slot] = predicted_use(params_.step_number.read());
    params_.fetches[index_ * params_.max_rows + i] = {
        sequence_.row_blocks[position / kPageTokens] +
            layout_.row_offset(params_.step.layer, head_, position % kPageTokens),
        sequence_.hot +
            layout_.hot_offset(params_.step.attending_layer(), head_, slot, slots_.count)};
  }

  const ClaimSlotsParams& params_;
  const CacheLayout& layout_;
  const SequenceDesc& sequence_;
  const int head_;
  const int64_t index_;
  const bool is_first_;  // of tokens that share hot slots
  const HotSlots slots_;
  int32_t* candidates_ = nullptr;
  int count_ = 0;  // candidates
};

}  // namespace

template <>
KernelWork run(const ClaimSlotsParams& params) {
  const CacheLayout& layout = params.step.layout;
  const int heads = params.step.count * layout.kv_heads;
  std::atomic<uint64_t> total{0};
  parallel_for(0, heads, [&](int task) {
    const int fetched =
        ClaimSlotsHead(params, task / layout.kv_heads, task % layout.kv_heads).run();
    params.fetch_counts[task] = fetched;
    total.fetch_add(static_cast<uint64_t>(fetched), std::memory_order_relaxed);
  });
  const uint64_t rows = total.load(std::memory_order_relaxed);
  std::atomic_ref(params.counters->prefetched).fetch_add(rows, std::memory_order_relaxed);
  int64_t words = 0;  // per KV head, all sequences
  for (int i = 0; i < params.step.count; ++i) {
    words += params.selected_capacity + int64_t{2} * params.step.sequences[i].hot_rows;
  }
  words *= layout.kv_heads;
  return {.device_bytes =
              static_cast<uint64_t>(words) * sizeof(int32_t) + rows * sizeof(FetchItem)};
}

}  // namespace fasa::cpu
