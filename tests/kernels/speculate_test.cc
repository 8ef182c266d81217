// Speculate against the reference, slot for slot, between resolves with changing sets; and what it
// promises whatever the guesses are.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <random>
#include <set>

#include "tests/kernels/row_case.h"

namespace fasa {
namespace {

constexpr int kLength = 300;
constexpr int kSet = 60;

RowShape shape_of(int hot_rows, bool device_copies) {
  RowShape shape;
  shape.key_dim = 20, shape.value_dim = 12, shape.layers = 2;
  shape.hot_rows = hot_rows, shape.on_device = false;
  shape.device_copies = device_copies;
  return shape;
}

// The outputs of both kernels for two sequences of two heads.
struct Buffers {
  explicit Buffers(const CacheLayout& layout)
      : rows(4 * kSet),
        ready(4 * ((kSet + 31) / 32)),
        fetches(4 * 512),
        counts(4, -1),
        staging(static_cast<size_t>(4 * kSet * layout.row.bytes())) {}
  std::vector<const std::byte*> rows;
  std::vector<uint8_t> ready;
  std::vector<FetchItem> fetches;
  std::vector<int32_t> counts;
  std::vector<std::byte> staging;
};

class Side {
 public:
  Side(int hot_rows, bool with_reference, bool device_copies = false)
      : cache(shape_of(hot_rows, device_copies), {1, 2}, kLength + 40),
        buffers(cache.layout()),
        with_reference_(with_reference) {
    cache.advance({{0, kLength}, {1, kLength - 13}});
  }
  void begin() {
    step_ = cache.begin(kAdvances);
    cache.append(step_);
  }
  void commit() { cache.commit(kAdvances); }
  void speculate(SpeculateParams params) {
    params.step = cache.params(step_, 1);
    params.fetches = buffers.fetches.data();
    params.fetch_counts = buffers.counts.data();
    params.counters = &counters;
    with_reference_ ? reference::speculate(params) : static_cast<void>(cpu::speculate(params));
    gather(params.max_rows);
  }
  void resolve(ResolveParams params) {
    params.step = cache.params(step_, 1);
    params.rows_on_device = false;
    params.end = kSet;
    params.staging = buffers.staging.data();
    params.rows = buffers.rows.data();
    params.tile_ready = buffers.ready.data();
    params.fetches = buffers.fetches.data();
    params.fetch_counts = buffers.counts.data();
    params.counters = &counters;
    with_reference_ ? reference::resolve(params) : static_cast<void>(cpu::resolve(params));
    gather(kSet);
  }
  HotSlots slots(int sequence, int head) {
    return HotSlots::of(cache.layout(), cache.sequence(sequence).hot_table.data(), 1, head);
  }

  RowCase cache;
  Buffers buffers;
  StepCounters counters;
  static inline const std::vector<Advance> kAdvances = {{0, 1, StepMode::kDecode},
                                                        {1, 1, StepMode::kDecode}};

 private:
  // By three lanes, as the pipeline deals heads out.
  void gather(int wave) {
    for (int lane = 0; lane < 3; ++lane) {
      const GatherParams params{cache.layout(),        2,    wave, buffers.fetches.data(),
                                buffers.counts.data(), lane, 3};
      with_reference_ ? reference::gather(params) : static_cast<void>(cpu::gather(params));
    }
  }
  bool with_reference_;
  RowStep step_;
};

std::vector<int32_t> anything(std::mt19937& random, int count) {
  std::vector<int32_t> guesses;
  for (int i = 0; i < count; ++i) {
    const auto kind = random() % 12;
    guesses.push_back(kind == 0            ? static_cast<int32_t>(random())
                      : kind == 1          ? INT_MAX
                      : kind == 2          ? INT_MIN
                      : kind == 3 && i > 0 ? guesses.back()
                                           : static_cast<int32_t>(random() % (kLength + 20)) - 5);
  }
  return guesses;
}

// Sinks, recent and random others: the same in both.
std::vector<int32_t> true_sets(RowCase& cache, std::mt19937& random) {
  std::vector<int32_t> sets;
  for (int head = 0; head < 4; ++head) {
    const int end = cache.sequence(head / 2).length + 1;
    std::set<int32_t> set;
    for (int i = 0; i < cache.layout().sinks; ++i) set.insert(i);
    for (int i = 1; i <= cache.layout().recent; ++i) set.insert(end - i);
    while (set.size() < kSet)
      set.insert(static_cast<int32_t>(random() % static_cast<unsigned>(end)));
    sets.insert(sets.end(), set.begin(), set.end());
  }
  return sets;
}

// No position twice, and every hot row is the row of its position.
void expect_sound(Side& side) {
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
        ASSERT_EQ(std::memcmp(owner.hot.data() + layout.hot_offset(1, head, slot),
                              owner.row_blocks[static_cast<size_t>(position / kPageTokens)] +
                                  layout.row_offset(1, head, position % kPageTokens),
                              static_cast<size_t>(layout.row.bytes())),
                  0);
      }
    }
  }
}

struct Setting {
  int hot_rows;
  int max_rows;
  Replacement replacement;
  bool device_copies = false;
};

class SpeculateTest : public testing::TestWithParam<Setting> {};

TEST_P(SpeculateTest, SameAsReference) {
  const Setting setting = GetParam();
  Side fast(setting.hot_rows, false, setting.device_copies);
  Side slow(setting.hot_rows, true, setting.device_copies);
  std::mt19937 random(9);
  for (int stamp = 1; stamp <= 14; ++stamp) {
    const int capacity = 1 + static_cast<int>(random() % 90);
    const std::vector<int32_t> guesses = anything(random, 4 * capacity);
    const std::vector<int32_t> sizes = {capacity, INT_MAX, -4, capacity / 2};
    const SpeculateParams guess{.step = {},
                                .stamp = stamp,
                                .replacement = setting.replacement,
                                .max_rows = setting.max_rows,
                                .set_capacity = capacity,
                                .sets = guesses.data(),
                                .set_sizes = sizes.data()};
    const std::vector<int32_t> sets = true_sets(fast.cache, random);
    const std::vector<int32_t> set_sizes(4, kSet);
    const ResolveParams resolve{.step = {},
                                .stamp = stamp,
                                .replacement = setting.replacement,
                                .set_capacity = kSet,
                                .sets = sets.data(),
                                .set_sizes = set_sizes.data()};
    for (Side* side : {&fast, &slow}) {
      side->begin();
      const uint64_t before = side->counters.speculated;
      side->speculate(guess);
      const uint64_t guessed = side->counters.speculated - before;
      EXPECT_LE(guessed, static_cast<uint64_t>(3 * setting.max_rows));  // one head had none
      side->speculate(guess);  // once more: all of it is there, or there was no room
      expect_sound(*side);
      for (const int32_t count : side->buffers.counts) EXPECT_LE(count, setting.max_rows);
    }
    EXPECT_EQ(fast.buffers.counts, slow.buffers.counts);
    for (Side* side : {&fast, &slow}) {
      side->resolve(resolve);
      expect_sound(*side);
    }
    EXPECT_EQ(fast.buffers.counts, slow.buffers.counts);
    EXPECT_EQ(fast.buffers.ready, slow.buffers.ready);
    EXPECT_EQ(fast.counters.hits, slow.counters.hits);
    EXPECT_EQ(fast.counters.misses, slow.counters.misses);
    EXPECT_EQ(fast.counters.speculated, slow.counters.speculated);
    EXPECT_EQ(fast.counters.speculated_used, slow.counters.speculated_used);
    for (int s = 0; s < 2; ++s) {
      ASSERT_EQ(fast.cache.sequence(s).hot_table, slow.cache.sequence(s).hot_table);
      ASSERT_EQ(fast.cache.sequence(s).hot, slow.cache.sequence(s).hot);
    }
    fast.commit();
    slow.commit();
  }
  EXPECT_EQ(fast.counters.speculated > 0, setting.max_rows > 0 && setting.hot_rows > 0);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, SpeculateTest,
    testing::Values(Setting{0, 5, Replacement::kLru}, Setting{1, 1, Replacement::kLru},
                    Setting{61, 0, Replacement::kLru}, Setting{61, 1, Replacement::kClock},
                    Setting{77, 17, Replacement::kLru}, Setting{77, 17, Replacement::kClock},
                    Setting{77, 17, Replacement::kScore}, Setting{200, 140, Replacement::kScore},
                    Setting{511, 451, Replacement::kLru}, Setting{77, 17, Replacement::kLru, true},
                    Setting{200, 140, Replacement::kScore, true}),
    [](const auto& test) {
      return "hot" + std::to_string(test.param.hot_rows) + "_rows" +
             std::to_string(test.param.max_rows) + "_policy" +
             std::to_string(static_cast<int>(test.param.replacement)) +
             (test.param.device_copies ? "_copies" : "");
    });

// A guess that comes true is a hit whose tile waits; one that does not is nobody's.
TEST(SpeculateTest, UsedGuessesAreCountedAndNotReady) {
  Side side(100, false);
  side.begin();
  std::vector<int32_t> guesses(4 * 2);
  for (size_t head = 0; head < 4; ++head) guesses[2 * head] = 40, guesses[2 * head + 1] = 41;
  const std::vector<int32_t> sizes(4, 2);
  side.speculate({.step = {},
                  .stamp = 1,
                  .max_rows = 5,
                  .set_capacity = 2,
                  .sets = guesses.data(),
                  .set_sizes = sizes.data()});
  EXPECT_EQ(side.counters.speculated, 8u);
  std::vector<int32_t> sets;
  for (int head = 0; head < 4; ++head) {
    for (int i = 0; i < kSet; ++i) sets.push_back(41 + 3 * i);  // has 41 and not 40
  }
  const std::vector<int32_t> set_sizes(4, 20);
  side.resolve({.step = {},
                .stamp = 1,
                .set_capacity = kSet,
                .sets = sets.data(),
                .set_sizes = set_sizes.data()});
  EXPECT_EQ(side.counters.speculated_used, 4u);
  EXPECT_EQ(side.counters.hits, 4u);
  EXPECT_EQ(side.buffers.ready, (std::vector<uint8_t>{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_NEAR(side.counters.precision(), 0.5, 1e-9);
}

// A table that was distrusted says what it held; that is fetched back, into free slots.
TEST(SpeculateTest, RememberedRowsComeBack) {
  Side fast(40, false);
  Side slow(40, true);
  for (Side* side : {&fast, &slow}) {
    side->begin();
    for (int s = 0; s < 2; ++s) {
      for (int head = 0; head < 2; ++head) {
        const HotSlots slots = side->slots(s, head);
        for (int slot = 0; slot < slots.count; ++slot) {
          slots.positions[slot] = slot % 3 == 0   ? remembered(20 + slot)
                                  : slot % 3 == 1 ? -1
                                                  : 150 + slot;
          slots.stamps[slot] = slot_stamp(1, 1);
        }
        slots.positions[3] = remembered(kLength + 5);  // beyond the end
        slots.positions[6] = remembered(150 + 2);      // slot 2 holds it
      }
    }
    side->speculate({.step = {}, .stamp = 2, .max_rows = 8});
    for (const int32_t count : side->buffers.counts) EXPECT_EQ(count, 8);
  }
  for (int s = 0; s < 2; ++s) {
    EXPECT_EQ(fast.cache.sequence(s).hot_table, slow.cache.sequence(s).hot_table);
  }
  const HotSlots slots = fast.slots(0, 0);
  std::set<int32_t> positions;
  int guessed = 0;
  for (int slot = 0; slot < slots.count; ++slot) {
    if (slots.positions[slot] < 0) continue;
    EXPECT_TRUE(positions.insert(slots.positions[slot]).second);
    guessed += slots.stamps[slot] == guessed_stamp(2) ? 1 : 0;
  }
  EXPECT_EQ(guessed, 8);
}

}  // namespace
}  // namespace fasa
