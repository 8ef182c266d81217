// ClaimSlots against the reference, slot for slot, between resolves with changing sets, and its
// guarantees for arbitrary predictions. For any device's kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <random>
#include <set>

#include "kernels/hot_slots.h"
#include "tests/kernels/row_case.h"
#include "tests/kernels/row_kernels.h"

namespace fasa {

inline constexpr int kClaimLength = 300;
inline constexpr int kClaimSet = 60;

inline RowShape claim_slots_shape(int hot_rows, bool device_copies, int sharers) {
  RowShape shape;
  shape.key_dim = 20, shape.value_dim = 12, shape.layers = 2;
  shape.hot_rows = hot_rows, shape.on_device = false;
  shape.device_copies = device_copies;
  shape.sharers = sharers;
  return shape;
}

// The outputs of both kernels for two sequences of two heads.
struct ClaimSlotsBuffers {
  explicit ClaimSlotsBuffers(const CacheLayout& layout)
      : rows(4 * kClaimSet),
        ready(4 * ((kClaimSet + 31) / 32)),
        fetches(4 * 512),
        counts(4, -1),
        fetch_buffer(static_cast<size_t>(4 * kClaimSet * layout.row.bytes())) {}
  std::vector<const std::byte*> rows;
  std::vector<uint8_t> ready;
  std::vector<FetchItem> fetches;
  std::vector<int32_t> counts;
  std::vector<std::byte> fetch_buffer;
};

class ClaimSlotsSide {
 public:
  ClaimSlotsSide(int hot_rows, RowKernels kernels, bool device_copies = false, int sharers = 0)
      : cache(claim_slots_shape(hot_rows, device_copies, sharers), {1, 2}, kClaimLength + 40),
        buffers(cache.layout()),
        kernels_(std::move(kernels)) {
    cache.advance({{0, kClaimLength}, {1, kClaimLength - 13}});
  }
  void begin() {
    step_ = cache.begin(kAdvances);
    cache.append(step_);
  }
  void commit() { cache.commit(kAdvances); }
  void claim_slots(ClaimSlotsParams params) {
    params.step = cache.params(step_, 1);
    params.fetches = buffers.fetches.data();
    params.fetch_counts = buffers.counts.data();
    params.counters = &counters;
    kernels_.claim_slots(params);
    gather(params.max_rows);
  }
  void resolve(ResolveParams params) {
    params.step = cache.params(step_, 1);
    params.end = kClaimSet;
    params.fetch_buffer = buffers.fetch_buffer.data();
    params.rows = buffers.rows.data();
    params.tile_ready = buffers.ready.data();
    params.fetches = buffers.fetches.data();
    params.fetch_counts = buffers.counts.data();
    params.counters = &counters;
    kernels_.resolve(params);
    gather(kClaimSet);
  }
  HotSlots slots(int sequence, int head) {
    return HotSlots::of(cache.layout(), cache.sequence(sequence).hot_table.data(),
                        attending_layer(), head, cache.shape().hot_rows);
  }
  int attending_layer() const { return 1 + cache.shape().sharers; }

  RowCase cache;
  ClaimSlotsBuffers buffers;
  StepCounters counters;
  static inline const std::vector<Advance> kAdvances = {{0, 1, StepMode::kDecode},
                                                        {1, 1, StepMode::kDecode}};

 private:
  // In three calls, as the pipeline distributes heads over its copy streams.
  void gather(int wave) {
    for (int lane = 0; lane < 3; ++lane) {
      const GatherParams params{cache.layout(),        2,    wave, buffers.fetches.data(),
                                buffers.counts.data(), lane, 3};
      kernels_.gather(params);
    }
  }
  RowKernels kernels_;
  RowStep step_;
};

inline std::vector<int32_t> anything(std::mt19937& random, int count) {
  std::vector<int32_t> predictions;
  for (int i = 0; i < count; ++i) {
    const auto kind = random() % 12;
    predictions.push_back(kind == 0   ? static_cast<int32_t>(random())
                          : kind == 1 ? INT_MAX
                          : kind == 2 ? INT_MIN
                          : kind == 3 && i > 0
                              ? predictions.back()
                              : static_cast<int32_t>(random() % (kClaimLength + 20)) - 5);
  }
  return predictions;
}

// Four heads' sets in the order of a select: each ascending.
inline std::vector<int32_t> ascending(std::mt19937& random, int capacity) {
  std::vector<int32_t> predictions;
  for (int head = 0; head < 4; ++head) {
    int32_t position = -3;
    for (int i = 0; i < capacity; ++i) {
      position += 1 + static_cast<int32_t>(random() % 6);
      predictions.push_back(position);
    }
  }
  return predictions;
}

// Sinks, recent tokens and random others; the same sets on both sides.
inline std::vector<int32_t> true_sets(RowCase& cache, std::mt19937& random) {
  std::vector<int32_t> sets;
  for (int head = 0; head < 4; ++head) {
    const int end = cache.sequence(head / 2).length + 1;
    std::set<int32_t> set;
    for (int i = 0; i < cache.layout().sinks; ++i) set.insert(i);
    for (int i = 1; i <= cache.layout().recent; ++i) set.insert(end - i);
    while (set.size() < kClaimSet)
      set.insert(static_cast<int32_t>(random() % static_cast<unsigned>(end)));
    sets.insert(sets.end(), set.begin(), set.end());
  }
  return sets;
}

// No position occurs twice, and every hot row holds the row of its position.
inline void expect_sound(ClaimSlotsSide& side) {
  for (int sequence = 0; sequence < 2; ++sequence) {
    for (int head = 0; head < 2; ++head) {
      const HotSlots slots = side.slots(sequence, head);
      const RowSequence& owner = side.cache.sequence(sequence);
      std::set<int32_t> seen;
      for (int slot = 0; slot < slots.count; ++slot) {
        const int32_t position = slots.positions[slot];
        if (position < 0) continue;
        ASSERT_TRUE(seen.insert(position).second) << "position " << position << " has two slots";
        ASSERT_LT(position, owner.length + 1);
        const auto page = static_cast<size_t>(position / kPageTokens);
        if (page < owner.device_row_blocks.size()) {
          ASSERT_EQ(owner.device_row_blocks[page], nullptr) << "position " << position;
        }
        const CacheLayout& layout = side.cache.layout();
        ASSERT_EQ(
            std::memcmp(owner.hot.data() + layout.hot_offset(side.attending_layer(), head, slot,
                                                             side.cache.shape().hot_rows),
                        owner.row_blocks[static_cast<size_t>(position / kPageTokens)] +
                            layout.row_offset(1, head, position % kPageTokens),
                        static_cast<size_t>(layout.row.bytes())),
            0);
      }
    }
  }
}

struct ClaimSlotsSetting {
  int hot_rows;
  int max_rows;
  bool device_copies = false;
  int sharers = 0;
};

inline std::vector<ClaimSlotsSetting> claim_slots_settings() {
  return {{0, 5},     {1, 1},     {61, 0},        {61, 1},          {77, 17},          {200, 140},
          {511, 451}, {4200, 90}, {77, 17, true}, {200, 140, true}, {77, 17, false, 2}};
}
inline std::string name_of(const ClaimSlotsSetting& setting) {
  return "hot" + std::to_string(setting.hot_rows) + "_rows" + std::to_string(setting.max_rows) +
         (setting.device_copies ? "_copies" : "") + (setting.sharers > 0 ? "_shared" : "");
}

inline void expect_claims_slots_as_reference(const ClaimSlotsSetting& setting,
                                             const RowKernels& kernels) {
  ClaimSlotsSide fast(setting.hot_rows, kernels, setting.device_copies, setting.sharers);
  ClaimSlotsSide slow(setting.hot_rows, reference_row_kernels(), setting.device_copies,
                      setting.sharers);
  std::mt19937 random(9);
  for (int step_number = 1; step_number <= 14; ++step_number) {
    const int capacity = 1 + static_cast<int>(random() % 90);
    std::vector<int32_t> predictions = anything(random, 4 * capacity);
    if (step_number % 2 == 0) predictions = ascending(random, capacity);
    const std::vector<int32_t> sizes = {capacity, INT_MAX, -4, capacity / 2};
    const ClaimSlotsParams prediction{.step = {},
                                      .step_number = StepNumber(step_number),
                                      .max_rows = setting.max_rows,
                                      .runners_up = step_number % 3 != 0,
                                      .window = step_number % 5 == 0 ? 90 : 0,
                                      .selected_capacity = capacity,
                                      .sets = predictions.data(),
                                      .selected_sizes = sizes.data()};
    const std::vector<int32_t> sets = true_sets(fast.cache, random);
    const std::vector<int32_t> selected_sizes(4, kClaimSet);
    const ResolveParams resolve{.step = {},
                                .step_number = StepNumber(step_number),
                                .selected_capacity = kClaimSet,
                                .sets = sets.data(),
                                .selected_sizes = selected_sizes.data()};
    for (ClaimSlotsSide* side : {&fast, &slow}) {
      side->begin();
      const uint64_t before = side->counters.prefetched;
      side->claim_slots(prediction);
      const uint64_t predicted = side->counters.prefetched - before;
      // one head had no prediction
      EXPECT_LE(predicted, static_cast<uint64_t>(3 * setting.max_rows));
      // a second call finds every row present, or still no free slot
      side->claim_slots(prediction);
      expect_sound(*side);
      for (const int32_t count : side->buffers.counts) EXPECT_LE(count, setting.max_rows);
    }
    EXPECT_EQ(fast.buffers.counts, slow.buffers.counts);
    for (ClaimSlotsSide* side : {&fast, &slow}) {
      side->resolve(resolve);
      expect_sound(*side);
    }
    EXPECT_EQ(fast.buffers.counts, slow.buffers.counts);
    EXPECT_EQ(fast.buffers.ready, slow.buffers.ready);
    EXPECT_EQ(fast.counters.hits, slow.counters.hits);
    EXPECT_EQ(fast.counters.misses, slow.counters.misses);
    EXPECT_EQ(fast.counters.prefetched, slow.counters.prefetched);
    EXPECT_EQ(fast.counters.prefetched_used, slow.counters.prefetched_used);
    for (int s = 0; s < 2; ++s) {
      ASSERT_EQ(fast.cache.sequence(s).hot_table, slow.cache.sequence(s).hot_table);
      ASSERT_EQ(fast.cache.sequence(s).hot, slow.cache.sequence(s).hot);
    }
    fast.commit();
    slow.commit();
  }
  EXPECT_EQ(fast.counters.prefetched > 0, setting.max_rows > 0 && setting.hot_rows > 0);
}

}  // namespace fasa
