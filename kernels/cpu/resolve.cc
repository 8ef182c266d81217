// Finds the address of each row of a wave of set entries, and lists the rows to fetch. Per
// (sequence, kv_head), O(set + hot rows): the hot positions go into a hash table in the thread's
// scratch.

#include <algorithm>
#include <atomic>

#include "kernels/cpu/hot_index.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/rows/row_scratch.h"
#include "kernels/kernel_work.h"
#include "kernels/replacement.h"
#include "runtime/base/parallel.h"

namespace fasa::cpu {
namespace {

class ResolveHead {
 public:
  ResolveHead(const ResolveParams& params, int sequence, int head)
      : params_(params),
        layout_(params.step.layout),
        sequence_(params.step.sequences[sequence]),
        head_(head),
        index_(int64_t{sequence} * layout_.kv_heads + head),
        wave_(params.end - params.begin),
        set_(params.sets + index_ * params.selected_capacity),
        rows_(params.rows + index_ * wave_),
        fetches_(params.fetches == nullptr ? nullptr : params.fetches + index_ * wave_) {
    size_ = sequence_.mode == StepMode::kDecode ? params.selected_sizes[index_] : 0;
    entries_ = std::max(0, std::min(params.end, size_) - params.begin);
  }

  void run(StepCounters* totals) {
    const int64_t tiles = (wave_ + kTileTokens - 1) / kTileTokens;
    ready_ = params_.tile_ready + index_ * tiles;
    std::fill_n(ready_, tiles, uint8_t{1});
    if (sequence_.access == RowAccess::kLocal) {
      resolve_local();
    } else {
      resolve_over_link();
    }
    if (params_.fetch_counts != nullptr) params_.fetch_counts[index_] = fetched_;
    add(totals->protected_rows, protected_);
    add(totals->hits, hits_);
    add(totals->misses, fetched_);
    if (used_predictions_ > 0) add(totals->prefetched_used, used_predictions_);
  }

 private:
  static void add(uint64_t& counter, int amount) {
    std::atomic_ref(counter).fetch_add(static_cast<uint64_t>(amount), std::memory_order_relaxed);
  }

  bool is_protected(int position) const { return sequence_.is_protected(layout_, position); }

  const std::byte* block_row(int position) const {
    return sequence_.row_blocks[position / kPageTokens] +
           layout_.row_offset(params_.step.layer, head_, position % kPageTokens);
  }

  // The row in its page's device copy, or null.
  const std::byte* device_row(int position) const {
    const std::byte* block = sequence_.device_row_block(position / kPageTokens);
    if (block == nullptr) return nullptr;
    return block + layout_.row_offset(params_.step.layer, head_, position % kPageTokens);
  }

  void resolve_local() {
    for (int i = 0; i < entries_; ++i) {
      const int position = set_[params_.begin + i];
      rows_[i] = block_row(position);
      ++(is_protected(position) ? protected_ : hits_);
    }
  }

  void resolve_over_link() {
    slots_ = HotSlots::of(layout_, sequence_.hot_table, params_.step.attending_layer(), head_,
                          sequence_.hot_rows);
    const int64_t buckets = HotIndex::bucket_count(slots_.count);
    int32_t* scratch = reinterpret_cast<int32_t*>(
        thread_scratch((buckets + slots_.count + wave_) * int64_t{sizeof(int32_t)}));
    victims_ = scratch + buckets;
    int32_t* misses = victims_ + slots_.count;

    const HotIndex index(slots_, 0, scratch);
    if (params_.begin == 0) {
      for (int i = 0; i < size_; ++i) mark_hit(index, i);
    }
    int count = 0;
    for (int i = 0; i < entries_; ++i) {
      const int position = set_[params_.begin + i];
      if (is_protected(position)) {
        rows_[i] =
            sequence_.protected_rows +
            layout_.protected_offset(params_.step.layer, head_, layout_.protected_slot(position));
        ++protected_;
        continue;
      }
      if (const std::byte* device = device_row(position); device != nullptr) {
        rows_[i] = device;
        ++hits_;
        continue;
      }
      const int32_t slot = index.find(position);
      if (slot < 0) {
        misses[count++] = i;
        continue;
      }
      rows_[i] = hot_row(slot);
      ++hits_;
    }
    if (count > 0) fetch(misses, count);
  }

  // Entry `i` of the whole set. The fetch of a row that this step has predicted, or fetches for an
  // earlier token, may still be in flight; those of earlier steps have been waited for.
  void mark_hit(const HotIndex& index, int i) {
    if (is_protected(set_[i]) || device_row(set_[i]) != nullptr) return;
    const int32_t slot = index.find(set_[i]);
    if (slot < 0) return;
    int32_t& last_use = slots_.last_uses[slot];
    if (is_prediction(last_use)) ++used_predictions_;
    if (step_of(last_use) == params_.step_number.read() && i < entries_) {
      ready_[i / kTileTokens] = 0;
    }
    last_use = slot_use(params_.step_number.read());
  }

  std::byte* hot_row(int32_t slot) const {
    return sequence_.hot +
           layout_.hot_offset(params_.step.attending_layer(), head_, slot, slots_.count);
  }

  void fetch(const int32_t* misses, int count) {
    const int slots = choose_victims(slots_, params_.step_number.read(), count, victims_);
    std::byte* fetch_buffer = params_.fetch_buffer;  // null if every miss finds a hot slot
    if (fetch_buffer != nullptr) fetch_buffer += index_ * wave_ * layout_.row.bytes();
    for (int m = 0; m < count; ++m) {
      const int i = misses[m];
      const int position = set_[params_.begin + i];
      std::byte* destination = nullptr;
      if (m < slots) {
        const int32_t slot = victims_[m];
        slots_.positions[slot] = position;
        slots_.last_uses[slot] = slot_use(params_.step_number.read());
        destination = hot_row(slot);
      } else {
        destination = fetch_buffer + i * layout_.row.bytes();
      }
      fetches_[m] = {block_row(position), destination};
      rows_[i] = destination;
      ready_[i / kTileTokens] = 0;
    }
    fetched_ = count;
  }

  const ResolveParams& params_;
  const CacheLayout& layout_;
  const SequenceDesc& sequence_;
  const int head_;
  const int64_t index_;
  const int64_t wave_;
  const int32_t* set_;
  const std::byte** rows_;
  FetchItem* fetches_;
  uint8_t* ready_ = nullptr;
  int size_ = 0;     // entries in the set
  int entries_ = 0;  // entries in this wave
  HotSlots slots_;
  int32_t* victims_ = nullptr;
  int protected_ = 0;
  int hits_ = 0;
  int fetched_ = 0;
  int used_predictions_ = 0;
};

}  // namespace

template <>
KernelWork run(const ResolveParams& params) {
  const int kv_heads = params.step.layout.kv_heads;
  const int together = params.step.together;
  const int heads = params.step.count / together * params.step.head_count();
  parallel_for(0, heads, [&](int task) {
    const int head = params.step.head_index(task);
    const int first = head / kv_heads * together;  // of tokens that share hot slots
    for (int token = first; token < first + together; ++token) {
      ResolveHead(params, token, head % kv_heads).run(params.counters);
    }
  });
  uint64_t bytes = 0;
  for (int i = 0; i < params.step.count; ++i) {
    bytes += resolve_bytes(params.step.head_count(), params.end - params.begin,
                           params.step.sequences[i].hot_rows);
  }
  return {.device_bytes = bytes};
}

}  // namespace fasa::cpu
