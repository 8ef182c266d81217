// Where the rows of a wave of set entries are, and what has to be fetched. Per (sequence, kv_head),
// O(set + hot rows): the hot positions go into a hash table in the thread's scratch.
#include <tbb/parallel_for.h>

#include <algorithm>
#include <atomic>
#include <bit>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/row_scratch.h"
#include "kernels/kernel_work.h"

namespace fasa::cpu {
namespace {

// Position -> slot of the hot rows, open addressing, at most half full.
class HotIndex {
 public:
  HotIndex(const int32_t* positions, int hot_rows, int32_t* buckets)
      : positions_(positions), buckets_(buckets), mask_(bucket_count(hot_rows) - 1) {
    std::fill_n(buckets_, mask_ + 1, -1);
    for (int32_t slot = 0; slot < hot_rows; ++slot) {
      if (positions_[slot] < 0) continue;
      uint32_t at = hash(positions_[slot]);
      while (buckets_[at] >= 0) at = (at + 1) & mask_;
      buckets_[at] = slot;
    }
  }
  static uint32_t bucket_count(int hot_rows) {
    return std::bit_ceil(2 * static_cast<uint32_t>(hot_rows) + 1);
  }
  // -1: not there.
  int32_t find(int32_t position) const {
    for (uint32_t at = hash(position);; at = (at + 1) & mask_) {
      const int32_t slot = buckets_[at];
      if (slot < 0 || positions_[slot] == position) return slot;
    }
  }

 private:
  uint32_t hash(int32_t position) const {
    const uint32_t mixed = static_cast<uint32_t>(position) * 2654435769u;  // 2^32 / golden ratio
    return (mixed ^ mixed >> 15) & mask_;
  }

  const int32_t* positions_;
  int32_t* buckets_;
  uint32_t mask_;
};

class ResolveHead {
 public:
  ResolveHead(const ResolveParams& params, int sequence, int head)
      : params_(params),
        layout_(params.step.layout),
        sequence_(params.step.sequences[sequence]),
        head_(head),
        index_(int64_t{sequence} * layout_.kv_heads + head),
        wave_(params.end - params.begin),
        set_(params.sets + index_ * params.set_capacity),
        rows_(params.rows + index_ * wave_),
        fetches_(params.fetches == nullptr ? nullptr : params.fetches + index_ * wave_) {
    size_ = sequence_.mode == StepMode::kDecode ? params.set_sizes[index_] : 0;
    entries_ = std::max(0, std::min(params.end, size_) - params.begin);
  }

  void run(StepCounters* totals) {
    const int64_t tiles = (wave_ + kTileTokens - 1) / kTileTokens;
    ready_ = params_.tile_ready + index_ * tiles;
    std::fill_n(ready_, tiles, uint8_t{1});
    if (params_.rows_on_device) {
      resolve_on_device();
    } else {
      resolve_on_host();
    }
    if (params_.fetch_counts != nullptr) params_.fetch_counts[index_] = fetched_;
    add(totals->resident, resident_);
    add(totals->hits, hits_);
    add(totals->misses, fetched_);
  }

 private:
  static void add(uint64_t& counter, int amount) {
    std::atomic_ref(counter).fetch_add(static_cast<uint64_t>(amount), std::memory_order_relaxed);
  }

  bool is_resident(int position) const {
    return position < layout_.sinks || position >= sequence_.end() - layout_.recent;
  }

  const std::byte* block_row(int position) const {
    return sequence_.row_blocks[position / kPageTokens] +
           layout_.row_offset(params_.step.layer, head_, position % kPageTokens);
  }

  void resolve_on_device() {
    for (int i = 0; i < entries_; ++i) {
      const int position = set_[params_.begin + i];
      rows_[i] = block_row(position);
      ++(is_resident(position) ? resident_ : hits_);
    }
  }

  void resolve_on_host() {
    const bool hot = sequence_.hot != nullptr && layout_.hot_rows > 0;
    const int hot_rows = hot ? layout_.hot_rows : 0;
    positions_ =
        hot ? sequence_.hot_table + layout_.hot_table_index(params_.step.layer, head_) : nullptr;
    stamps_ = hot ? positions_ + hot_rows : nullptr;
    const int64_t buckets = HotIndex::bucket_count(hot_rows);
    int32_t* scratch = reinterpret_cast<int32_t*>(
        thread_scratch((buckets + hot_rows + wave_) * int64_t{sizeof(int32_t)}));
    victims_ = scratch + buckets;
    int32_t* misses = victims_ + hot_rows;

    const HotIndex index(positions_, hot_rows, scratch);
    if (params_.begin == 0) {
      for (int i = 0; i < size_; ++i) stamp_hit(index, set_[i]);
    }
    int count = 0;
    for (int i = 0; i < entries_; ++i) {
      const int position = set_[params_.begin + i];
      if (is_resident(position)) {
        rows_[i] = sequence_.residents + layout_.resident_offset(params_.step.layer, head_,
                                                                 layout_.resident_slot(position));
        ++resident_;
        continue;
      }
      const int32_t slot = index.find(position);
      if (slot < 0) {
        misses[count++] = i;
        continue;
      }
      stamps_[slot] = params_.stamp;
      rows_[i] = hot_row(slot);
      ++hits_;
    }
    if (count > 0) fetch(misses, count, hot_rows);
  }

  void stamp_hit(const HotIndex& index, int position) {
    if (is_resident(position)) return;
    const int32_t slot = index.find(position);
    if (slot >= 0) stamps_[slot] = params_.stamp;
  }

  std::byte* hot_row(int32_t slot) const {
    return sequence_.hot + layout_.hot_offset(params_.step.layer, head_, slot);
  }

  // Empty slots first, then the least recently stamped; ties by slot. Returns how many of `wanted`.
  int choose_victims(int wanted, int hot_rows) {
    int count = 0;
    for (int32_t slot = 0; slot < hot_rows; ++slot) {
      if (positions_[slot] < 0 || stamps_[slot] != params_.stamp) victims_[count++] = slot;
    }
    const auto older = [this](int32_t a, int32_t b) {
      const bool empty_a = positions_[a] < 0;
      const bool empty_b = positions_[b] < 0;
      if (empty_a != empty_b) return empty_a;
      if (!empty_a && stamps_[a] != stamps_[b]) return stamps_[a] < stamps_[b];
      return a < b;
    };
    const int chosen = std::min(wanted, count);
    std::nth_element(victims_, victims_ + chosen, victims_ + count, older);
    std::sort(victims_, victims_ + chosen, older);
    return chosen;
  }

  void fetch(const int32_t* misses, int count, int hot_rows) {
    const int slots = choose_victims(count, hot_rows);
    std::byte* staging = params_.staging;  // null where every miss finds a hot slot
    if (staging != nullptr) staging += index_ * wave_ * layout_.row.bytes();
    for (int m = 0; m < count; ++m) {
      const int i = misses[m];
      const int position = set_[params_.begin + i];
      std::byte* destination = nullptr;
      if (m < slots) {
        const int32_t slot = victims_[m];
        positions_[slot] = position;
        stamps_[slot] = params_.stamp;
        destination = hot_row(slot);
      } else {
        destination = staging + i * layout_.row.bytes();
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
  int size_ = 0;     // of the set
  int entries_ = 0;  // of this wave
  int32_t* positions_ = nullptr;
  int32_t* stamps_ = nullptr;
  int32_t* victims_ = nullptr;
  int resident_ = 0;
  int hits_ = 0;
  int fetched_ = 0;
};

}  // namespace

KernelWork resolve(const ResolveParams& params) {
  const int kv_heads = params.step.layout.kv_heads;
  tbb::parallel_for(0, params.step.count * kv_heads, [&](int task) {
    ResolveHead(params, task / kv_heads, task % kv_heads).run(params.counters);
  });
  const int64_t heads = int64_t{params.step.count} * kv_heads;
  return {.device_bytes = resolve_bytes(params.step.layout, heads, params.end - params.begin)};
}

}  // namespace fasa::cpu
