// How a layer's KV heads are split into head groups.
#include "scheduler/plan/head_groups.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fasa {
namespace {

constexpr int kHeads = 8;

// A layer of Llama-3.1-8B at 128k tokens on a card with 288 GB/s behind 25 GB/s.
GroupTimes usual() {
  return {.launch = 4e-6,
          .select_call = 4e-6,
          .fetch_call = 4e-6,
          .attend_call = 4e-6,
          .latency = 10e-6,
          .score = 16.5e-6,
          .resolve = 0.1e-6,
          .transfer = 0.8e-6,
          .attend = 0.45e-6,
          .streams = 2};
}

void expect_all_heads_once(const HeadGroups& groups, int kv_heads) {
  int next = 0;
  for (int g = 0; g < groups.count(); ++g) {
    EXPECT_EQ(groups[g].begin, next);
    EXPECT_GT(groups[g].end, next);
    next = groups[g].end;
  }
  EXPECT_EQ(next, kv_heads);
}

TEST(HeadGroups, SpanOfOneGroupIsTheSumOfWhatItDoes) {
  const GroupTimes t = usual();
  EXPECT_NEAR(t.span(HeadGroups(kHeads)),
              3 * t.launch + kHeads * (t.score + t.resolve + t.transfer + t.attend) + t.latency,
              1e-12);
}

TEST(HeadGroups, OnlyTheLastGroupIsWaitedForWhereTheFirstIsHidden) {
  const GroupTimes t = usual();
  HeadGroups groups = HeadGroups::none();
  groups.add(7);
  groups.add(kHeads);
  // Score, then look up and fetch, then attend; the first group's FAC overlaps with the fetch.
  EXPECT_NEAR(t.span(groups),
              2 * t.launch + kHeads * t.score + t.launch + t.resolve + t.transfer + t.latency +
                  t.launch + t.attend,
              1e-12);
}

TEST(HeadGroups, SplitsWhereScoringHidesAFetch) {
  const HeadGroups groups = choose_groups(usual(), kHeads, 0);
  expect_all_heads_once(groups, kHeads);
  EXPECT_EQ(groups.count(), 2);
  EXPECT_GE(groups[0].end, kHeads / 2);
}

TEST(HeadGroups, NoneIsSplitWhereThatCostsMore) {
  GroupTimes short_context = usual();
  short_context.score = 0.1e-6;
  EXPECT_EQ(choose_groups(short_context, kHeads, 0).count(), 1);
  GroupTimes all_there = usual();
  all_there.transfer = 0;
  EXPECT_EQ(choose_groups(all_there, kHeads, 0).count(), 1);
  EXPECT_EQ(choose_groups(usual(), 1, 0).count(), 1);
}

TEST(HeadGroups, ASlowLinkBeginsEarly) {
  GroupTimes slow = usual();
  slow.transfer = 20e-6;  // as long as scoring
  const HeadGroups groups = choose_groups(slow, kHeads, 0);
  expect_all_heads_once(groups, kHeads);
  EXPECT_GT(groups.count(), 2);
  EXPECT_LE(groups[0].end, 2);
}

// A select is five kernels, whatever its heads, and a fetch reads all hot slots.
TEST(HeadGroups, FewerWhereCallsCostWhatTheyDoOnAGpu) {
  GroupTimes slow = usual();
  slow.transfer = 20e-6;
  const int cheap = choose_groups(slow, kHeads, 0).count();
  slow.select_call = 42e-6;
  slow.fetch_call = 24e-6;
  slow.attend_call = 7e-6;
  EXPECT_LT(choose_groups(slow, kHeads, 0).count(), cheap);
  GroupTimes dear = usual();
  dear.select_call = 42e-6;
  EXPECT_EQ(choose_groups(dear, kHeads, 0).count(), 1);
}

TEST(HeadGroups, AsManyAsAreWanted) {
  for (const int kv_heads : {1, 2, 3, 8, 17, 40}) {
    for (const int wanted : {0, 1, 2, 3, 4}) {
      const HeadGroups groups = choose_groups(usual(), kv_heads, wanted);
      expect_all_heads_once(groups, kv_heads);
      if (wanted == 0) continue;
      EXPECT_EQ(groups.count(), std::min(wanted, kv_heads));
    }
  }
}

// The low-bit set of a slow card, attended to while rows are fetched: a launch more, and the wait
// is as much shorter as the codes take.
TEST(HeadGroups, CodesComeFirstWhereTheyHideAFetch) {
  GroupTimes times = usual();
  times.score = 0.1e-6;
  times.codes = 1.2e-6, times.attend += times.codes;
  const double whole = times.span(HeadGroups(kHeads));
  HeadGroups first(kHeads);
  first.set_codes_first(true);
  EXPECT_NEAR(times.span(first), whole - kHeads * times.codes, 1e-12);
  EXPECT_EQ(choose_groups(times, kHeads, 0), first);
  times.transfer = times.latency = times.resolve = 0;  // nothing to hide behind
  EXPECT_FALSE(choose_groups(times, kHeads, 0).codes_first());
  EXPECT_FALSE(choose_groups(usual(), kHeads, 0).codes_first()) << "there are none";
}

// No other split of a few heads costs less.
TEST(HeadGroups, NoOtherWayCostsLess) {
  for (const double transfer : {0.1e-6, 2e-6, 9e-6, 40e-6}) {
    for (const double score : {0.5e-6, 4e-6, 30e-6}) {
      GroupTimes times = usual();
      times.transfer = transfer, times.score = score;
      times.codes = score / 4, times.attend = 0.45e-6 + times.codes;
      const double best = times.cost(choose_groups(times, kHeads, 0));
      for (unsigned cuts = 0; cuts < 1u << (kHeads - 1); ++cuts) {
        if (__builtin_popcount(cuts) >= HeadGroups::kMax) continue;
        HeadGroups groups = HeadGroups::none();
        for (int head = 1; head < kHeads; ++head) {
          if ((cuts >> (head - 1) & 1u) != 0) groups.add(head);
        }
        groups.add(kHeads);
        for (const bool first : {false, true}) {
          groups.set_codes_first(first);
          EXPECT_GE(times.cost(groups), best - 1e-12);
        }
      }
    }
  }
}

}  // namespace
}  // namespace fasa
