// Resolve, gather and claim_slots of the CUDA device under the interpreter, against the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "kernels/cuda/claim_slots_inl.h"
#include "kernels/cuda/gather_inl.h"
#include "kernels/cuda/resolve_inl.h"
#include "tests/kernels/claim_slots_case.h"
#include "tests/kernels/resolve_case.h"
#include "tests/simt/simt_case.h"
#include "tests/support/reference/kernels.h"

namespace fasa {
namespace {

RowKernels simt_row_kernels(SimtInterpreter& interpreter) {
  const SimtLauncher launch(interpreter);
  return {[launch](const ResolveParams& params) { cuda::start(params, launch); },
          [launch](const ClaimSlotsParams& params) { cuda::start(params, launch); },
          [launch](const GatherParams& params) { cuda::start(params, launch); },
          [launch](const FetchParams& params) { cuda::start(params, launch); }};
}

class SimtResolve : public ::testing::TestWithParam<ResolveSetting> {};

TEST_P(SimtResolve, SameAsReferenceAndRowsArrive) {
  SimtInterpreter interpreter(SimtInterpreter::Order::kRandom, 5);
  expect_resolves_as_reference(GetParam(), simt_row_kernels(interpreter));
}

INSTANTIATE_TEST_SUITE_P(Settings, SimtResolve, ::testing::ValuesIn(resolve_settings()),
                         [](const auto& test) { return name_of(test.param); });

class SimtClaimSlots : public ::testing::TestWithParam<ClaimSlotsSetting> {};

TEST_P(SimtClaimSlots, SameAsReference) {
  SimtInterpreter interpreter(SimtInterpreter::Order::kRandom, 6);
  expect_claims_slots_as_reference(GetParam(), simt_row_kernels(interpreter));
}

INSTANTIATE_TEST_SUITE_P(Settings, SimtClaimSlots, ::testing::ValuesIn(claim_slots_settings()),
                         [](const auto& test) { return name_of(test.param); });

// Contexts of more windows of positions than one, and slots of more rounds of a block. Rows are
// pointed to and not read.
class LongContext {
 public:
  static constexpr int kTokens = 2 * cuda::PositionBits::kPositions + 4321;
  static constexpr int kHeads = 2;
  static constexpr int32_t kStep = 700;
  // Points to memory that nothing reads.
  static std::byte* address(int bits) { return reinterpret_cast<std::byte*>(intptr_t{1} << bits); }

  LongContext(int slots, int set, std::mt19937& random) : slots_(slots) {
    layout_.layers = 1;
    layout_.kv_heads = kHeads;
    layout_.row = {DType::kBF16, 16, 16};
    layout_.sinks = 4;
    layout_.recent = 16;
    for (int page = 0; page <= kTokens / kPageTokens; ++page) {
      blocks_.push_back(address(40) + page * 65536);
    }
    table_.resize(static_cast<size_t>(layout_.hot_table_bytes(slots) / 4));
    for (int head = 0; head < kHeads; ++head) {
      const std::vector<int32_t> held = some_positions(random, slots, {});
      // A third of the hot rows are asked for.
      const auto third = held.begin() + std::min(slots / 3, set);
      sets_.push_back(some_positions(random, set, {held.begin(), third}));
      const HotSlots of = HotSlots::of(layout_, table_.data(), 0, head, slots);
      for (int slot = 0; slot < slots; ++slot) {
        const bool empty = random() % 9 == 0;
        of.positions[slot] = empty ? -1 : held[static_cast<size_t>(slot)];
        const auto then = kStep - static_cast<int32_t>(random() % 600);
        of.last_uses[slot] = empty ? -1 : random() % 4 == 0 ? predicted_use(then) : slot_use(then);
      }
    }
  }

  std::vector<std::vector<int32_t>>& sets() { return sets_; }
  const std::vector<int32_t>& table() const { return table_; }
  StepParams step() {
    desc_.start = kTokens - 1;
    desc_.tokens = 1;
    desc_.access = RowAccess::kOverLink;
    desc_.row_blocks = blocks_.data();
    desc_.protected_rows = address(41);
    desc_.hot = address(42);
    desc_.hot_table = table_.data();
    desc_.hot_rows = slots_;
    return {.layout = layout_, .sequences = &desc_, .count = 1};
  }
  const CacheLayout& layout() const { return layout_; }

 private:
  // `positions` and further ones before the recent tokens, in any order.
  static std::vector<int32_t> some_positions(std::mt19937& random, int count,
                                             std::set<int32_t> positions) {
    while (static_cast<int>(positions.size()) < count) {
      positions.insert(4 + static_cast<int32_t>(random() % (kTokens - 40)));
    }
    std::vector<int32_t> drawn(positions.begin(), positions.end());
    std::shuffle(drawn.begin(), drawn.end(), random);
    return drawn;
  }

  const int slots_;
  CacheLayout layout_;
  SequenceDesc desc_;
  std::vector<std::byte*> blocks_;
  std::vector<int32_t> table_;
  std::vector<std::vector<int32_t>> sets_;
};

std::vector<int32_t> joined(const std::vector<std::vector<int32_t>>& sets) {
  std::vector<int32_t> all;
  for (const auto& set : sets) all.insert(all.end(), set.begin(), set.end());
  return all;
}

// What a call wrote.
struct Written {
  Written(int heads, int each)
      : rows(static_cast<size_t>(heads * each)),
        ready(static_cast<size_t>(heads * ((each + 31) / 32))),
        fetches(static_cast<size_t>(heads * each)),
        counts(static_cast<size_t>(heads)) {}
  std::vector<const std::byte*> rows;
  std::vector<uint8_t> ready;
  std::vector<FetchItem> fetches;
  std::vector<int32_t> counts;
  StepCounters counters;

  // Items beyond the counts have no meaning.
  std::vector<std::pair<const std::byte*, std::byte*>> items(int each) const {
    std::vector<std::pair<const std::byte*, std::byte*>> items;
    for (size_t head = 0; head < counts.size(); ++head) {
      for (int i = 0; i < counts[head]; ++i) {
        const FetchItem& item = fetches[head * static_cast<size_t>(each) + static_cast<size_t>(i)];
        items.emplace_back(item.source, item.destination);
      }
    }
    return items;
  }
};

TEST(SimtHotRows, LongContextsResolveAsTheReference) {
  std::mt19937 random(12);
  for (const int slots : {1, 33, 1000, 5000}) {
    constexpr int kSet = 700;
    LongContext fast(slots, kSet, random);
    for (auto& set : fast.sets()) {
      std::sort(set.begin(), set.end());
      ASSERT_EQ(std::adjacent_find(set.begin(), set.end()), set.end());
    }
    LongContext slow = fast;
    const std::vector<int32_t> sets = joined(fast.sets());
    const std::vector<int32_t> sizes(LongContext::kHeads, kSet);
    for (int begin = 0; begin < kSet; begin += 512) {
      Written written[] = {{LongContext::kHeads, 512}, {LongContext::kHeads, 512}};
      for (LongContext* one : {&fast, &slow}) {
        Written& into = written[one == &fast ? 0 : 1];
        ResolveParams params;
        params.step = one->step();
        params.begin = begin;
        params.end = begin + 512;
        params.step_number = StepNumber(LongContext::kStep);
        params.selected_capacity = kSet;
        params.sets = sets.data();
        params.selected_sizes = sizes.data();
        params.fetch_buffer = LongContext::address(43);
        params.rows = into.rows.data();
        params.tile_ready = into.ready.data();
        params.fetches = into.fetches.data();
        params.fetch_counts = into.counts.data();
        params.counters = &into.counters;
        if (one == &slow) {
          reference::resolve(params);
        } else {
          SimtInterpreter interpreter(SimtInterpreter::Order::kRandom, 3);
          cuda::start(params, SimtLauncher(interpreter));
        }
      }
      for (int head = 0; head < LongContext::kHeads; ++head) {
        for (int i = 0; i < std::min(kSet - begin, 512); ++i) {
          const auto at = static_cast<size_t>(head * 512 + i);
          ASSERT_EQ(written[0].rows[at], written[1].rows[at]) << slots << " slots, entry " << i;
        }
      }
      EXPECT_EQ(written[0].ready, written[1].ready);
      EXPECT_EQ(written[0].counts, written[1].counts);
      EXPECT_EQ(written[0].items(512), written[1].items(512));
      EXPECT_EQ(written[0].counters.hits, written[1].counters.hits);
      EXPECT_EQ(written[0].counters.prefetched_used, written[1].counters.prefetched_used);
      EXPECT_EQ(fast.table(), slow.table()) << slots << " slots";
    }
  }
}

TEST(SimtHotRows, LongContextsClaimAsTheReference) {
  std::mt19937 random(13);
  for (const int slots : {1, 33, 1000, 5000}) {
    for (const bool runners_up : {false, true}) {
      for (const int max_rows : {0, 20, 900}) {
        constexpr int kSet = 700;
        LongContext fast(slots, kSet, random);
        for (auto& set : fast.sets()) {
          set[400] = set[30];  // twice
          set[20] = -3;
          set[21] = INT32_MAX;
        }
        LongContext slow = fast;
        const std::vector<int32_t> sets = joined(fast.sets());
        const std::vector<int32_t> sizes(LongContext::kHeads, kSet);
        Written written[] = {{LongContext::kHeads, 900}, {LongContext::kHeads, 900}};
        for (LongContext* one : {&fast, &slow}) {
          Written& into = written[one == &fast ? 0 : 1];
          const ClaimSlotsParams params{.step = one->step(),
                                        .step_number = StepNumber(LongContext::kStep),
                                        .max_rows = max_rows,
                                        .runners_up = runners_up,
                                        .selected_capacity = kSet,
                                        .sets = sets.data(),
                                        .selected_sizes = sizes.data(),
                                        .fetches = into.fetches.data(),
                                        .fetch_counts = into.counts.data(),
                                        .counters = &into.counters};
          if (one == &slow) {
            reference::claim_slots(params);
          } else {
            SimtInterpreter interpreter(SimtInterpreter::Order::kRandom, 4);
            cuda::start(params, SimtLauncher(interpreter));
          }
        }
        EXPECT_EQ(written[0].counts, written[1].counts) << slots << " slots";
        EXPECT_EQ(written[0].items(max_rows), written[1].items(max_rows));
        EXPECT_EQ(written[0].counters.prefetched, written[1].counters.prefetched);
        EXPECT_EQ(fast.table(), slow.table()) << slots << " slots";
      }
    }
  }
}

}  // namespace
}  // namespace fasa
