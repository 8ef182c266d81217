// How steps are processed: by their sequences, the scratch and the settings.
#include "scheduler/plan/step_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/select_plan.h"
#include "scheduler/plan/group_memo.h"
#include "tests/scheduler/drawn_settings.h"

namespace fasa::testing {
namespace {

// Two layers with sets of 100 tokens.
StepSettings settings_with(bool local, int hot_rows = 200) {
  StepSettings settings;
  settings.layout.layers = 2;
  settings.layout.kv_heads = 8;
  settings.layout.gqa_group = 4;
  settings.layout.row = {.dtype = DType::kBF16, .key_dim = 128, .value_dim = 128};
  settings.layout.slice = {.dtype = SliceDType::kInt2, .dims = 64};
  settings.layout.sinks = 4;
  settings.layout.recent = 16;
  settings.rows = local ? RowTier::kDevice : RowTier::kHost;
  settings.max_hot_rows = local ? 0 : hot_rows;
  settings.layers.assign(2, {.budget = {.tokens = 100}});
  settings.layers[1].index = 1;
  return settings;
}

DecodeCapacities held_for(const StepSettings& settings, int64_t context) {
  const Load load{.context = context,
                  .access = settings.access(),
                  .hot_rows = settings.max_hot_rows,
                  .predictions = {.max_depth = 2}};
  return capacities_for(settings, load).decode;
}

MemberLoad decoding(const StepSettings& settings, int32_t end) {
  return {.end = end, .access = settings.access(), .hot_rows = settings.max_hot_rows};
}

StepPlan plan_of(const StepSettings& settings, std::vector<MemberLoad> members,
                 PrefetchPlan prefetch = {}) {
  int32_t longest = 1;
  for (const MemberLoad& member : members) longest = std::max(longest, member.end);
  return plan_step(settings,
                   {.members = members, .held = held_for(settings, longest), .prefetch = prefetch});
}

std::vector<uint64_t> key_of(const StepPlan& plan) {
  std::vector<uint64_t> key;
  plan.append_key(key);
  return key;
}

// The kernel decides for each sequence, from the same budget and window, whether to score.
TEST(StepPlan, AgreesWithTheKernelOnWhatIsNotScored) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Draw draw(seed);
    const StepSettings settings = draw_settings(draw);
    for (int layer = 0; layer < settings.layer_count(); ++layer) {
      if (settings.layer(layer).dense) continue;
      SelectParams select;
      select.step.layout = settings.layout;
      select.budget = settings.layer(layer).budget;
      select.window = settings.layer(layer).window;
      for (int32_t end = 1; end <= 1200; ++end) {
        const SequenceDesc desc{.tokens = 1, .start = end - 1};
        const SelectPlan kernel = plan_selection(select, desc);
        const int32_t visible = settings.visible_tokens(layer, end);
        ASSERT_EQ(kernel.visible(), visible) << end;
        ASSERT_EQ(kernel.budget, settings.selected_tokens(layer, visible)) << end;
        ASSERT_EQ(kernel.is_dense(), settings.attends_to_all(layer, visible, RowAccess::kLocal))
            << end;
      }
    }
  }
}

// Scratch reserved for a context suffices for what every shorter step plans.
TEST(StepPlan, ReservedScratchSufficesForAllShorterSteps) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Draw draw(seed);
    const StepSettings settings = draw_settings(draw);
    const int tokens = draw.of(1, 1200);
    const RowAccess access = settings.access_of(tokens, settings.max_hot_rows);
    const DecodeCapacities held =
        capacities_for(settings,
                       {.context = tokens, .access = access, .hot_rows = settings.max_hot_rows})
            .decode;
    for (int32_t end = 1; end <= tokens; ++end) {
      const MemberLoad member{.end = end, .access = access, .hot_rows = settings.max_hot_rows};
      const StepPlan plan = plan_step(settings, {.members = {&member, 1}, .held = held});
      for (int layer = 0; layer < settings.layer_count(); ++layer) {
        const int32_t visible = settings.visible_tokens(layer, end);
        const bool all = plan.layer(layer).decode == DecodePath::kAllInPlace ||
                         plan.layer(layer).decode == DecodePath::kAllStreamed;
        ASSERT_EQ(all, settings.attends_to_all(layer, visible, access)) << end;
        if (all) {
          ASSERT_GT(held.dense_wave(settings), 0) << end;
        } else {
          ASSERT_GE(held.selected_capacity, settings.selected_tokens(layer, visible)) << end;
        }
      }
    }
  }
}

TEST(StepPlan, AllTokensWhileEverySequenceFitsItsSet) {
  const StepSettings local = settings_with(true);
  EXPECT_EQ(plan_of(local, {decoding(local, 100)}).layer(0).decode, DecodePath::kAllInPlace);
  EXPECT_EQ(plan_of(local, {decoding(local, 101)}).layer(0).decode, DecodePath::kSelectedInPlace);
  EXPECT_EQ(plan_of(local, {decoding(local, 50), decoding(local, 300)}).layer(1).decode,
            DecodePath::kSelectedInPlace);
  const StepSettings over_link = settings_with(false);
  EXPECT_EQ(plan_of(over_link, {decoding(over_link, 50)}).layer(0).decode,
            DecodePath::kSelectedInGroups);
  EXPECT_EQ(plan_of(over_link, {{.end = 50}}).layer(0).decode, DecodePath::kAllInPlace);
  EXPECT_EQ(plan_of(over_link, {{.end = 50}, decoding(over_link, 50)}).layer(0).decode,
            DecodePath::kSelectedInGroups);
  EXPECT_EQ(plan_of(over_link, {{.end = 300}}).layer(0).decode, DecodePath::kSelectedInPlace);
}

// A round of attention takes the paths of its step, which the scratch was sized for.
TEST(StepPlan, RoundsOfLocalRowsAloneTakeTheStepsPath) {
  const StepSettings settings = settings_with(false);
  for (const int32_t end : {50, 300}) {
    const MemberLoad local{.end = end};
    const StepPlan plan = plan_step(
        settings,
        {.members = {&local, 1}, .decoded = RowAccess::kOverLink, .held = held_for(settings, 500)});
    EXPECT_EQ(plan.layer(0).decode, DecodePath::kSelectedInGroups) << end;
  }
}

TEST(StepPlan, SetsOfTokensTogetherLeaveFewerHotRowsForPredictions) {
  const StepSettings settings = settings_with(false, 250);
  const MemberLoad member = decoding(settings, 5000);
  const auto rows = [&](int together) {
    return plan_step(settings, {.members = {&member, 1},
                                .together = together,
                                .held = held_for(settings, 5000),
                                .prefetch = {.depth = 1, .rows = 200}})
        .prefetch.rows;
  };
  EXPECT_EQ(rows(1), 100);  // as long as a list of runners-up
  EXPECT_EQ(rows(2), 50);
  EXPECT_EQ(rows(3), 0);
}

TEST(StepPlan, MissesWithoutHotSlotsAreFetchedInWaves) {
  const StepSettings few = settings_with(false, 99);
  const StepPlan plan = plan_of(few, {decoding(few, 5000)});
  EXPECT_EQ(plan.layer(0).decode, DecodePath::kSelectedInWaves);
  EXPECT_EQ(plan.layer(0).waves, 1);
  StepSettings many = settings_with(false, 99);
  for (LayerSettings& layer : many.layers) layer.budget.tokens = 129;
  EXPECT_EQ(plan_of(many, {decoding(many, 5000)}).layer(0).waves, 2);
  const StepSettings enough = settings_with(false, 100);
  EXPECT_EQ(plan_of(enough, {decoding(enough, 5000)}).layer(0).decode,
            DecodePath::kSelectedInGroups);
}

TEST(StepPlan, DenseLayersReadInPlaceOrAreStreamed) {
  StepSettings settings = settings_with(true);
  settings.layers[0].dense = true;
  StepPlan plan = plan_of(settings, {decoding(settings, 3 * settings.dense_wave + 1)});
  EXPECT_EQ(plan.layer(0).decode, DecodePath::kAllInPlace);
  EXPECT_EQ(plan.layer(0).waves, 4);
  EXPECT_EQ(plan.layer(1).decode, DecodePath::kSelectedInPlace);
  EXPECT_TRUE(plan.recordable);
  settings.rows = RowTier::kHost;
  settings.max_hot_rows = 200;
  plan = plan_of(settings, {decoding(settings, 5000)});
  EXPECT_EQ(plan.layer(0).decode, DecodePath::kAllStreamed);
  EXPECT_EQ(plan.layer(1).decode, DecodePath::kSelectedInGroups);
  EXPECT_FALSE(plan.recordable);
  settings.layers[0].in_window_rows = true;
  settings.layers[0].window = 64;
  plan = plan_of(settings, {decoding(settings, 5000)});
  EXPECT_EQ(plan.layer(0).decode, DecodePath::kAllInPlace);
  EXPECT_EQ(plan.layer(0).waves, 1);
  EXPECT_TRUE(plan.recordable);
}

TEST(StepPlan, PromptsAreNotRecorded) {
  for (const bool local : {true, false}) {
    const StepSettings settings = settings_with(local);
    MemberLoad prompt = decoding(settings, 500);
    prompt.mode = StepMode::kPrefill;
    const StepPlan alone = plan_of(settings, {prompt});
    EXPECT_EQ(alone.layer(0).decode, DecodePath::kNone);
    EXPECT_EQ(alone.layer(0).prefill, local ? PrefillPath::kInPlace : PrefillPath::kStreamed);
    EXPECT_FALSE(alone.recordable);
    const StepPlan both = plan_of(settings, {prompt, decoding(settings, 100)});
    EXPECT_EQ(both.layer(0).decode,
              local ? DecodePath::kAllInPlace : DecodePath::kSelectedInGroups);
    EXPECT_EQ(both.layer(0).prefill, alone.layer(0).prefill);
  }
}

TEST(StepPlan, StepsInWhichTheHostTakesPartAreNotRecorded) {
  const StepSettings settings = settings_with(true);
  const MemberLoad member = decoding(settings, 500);
  StepInput input{.members = {&member, 1}, .held = held_for(settings, 500)};
  EXPECT_TRUE(plan_step(settings, input).recordable);
  input.host_takes_part = true;
  EXPECT_FALSE(plan_step(settings, input).recordable);
}

// Steps of a page have the same key, whatever their lengths.
TEST(StepPlan, TheKeyChangesOnlyWithTheWork) {
  StepSettings settings = settings_with(false);
  settings.rates.link_bandwidth = 1.5e9;  // slow enough for head groups
  const DecodeCapacities held = held_for(settings, 200000);
  const auto key = [&](int32_t end, int32_t copied_pages = 0, PrefetchPlan prefetch = {}) {
    MemberLoad member = decoding(settings, end);
    member.copied_pages = copied_pages;
    return key_of(
        plan_step(settings, {.members = {&member, 1}, .held = held, .prefetch = prefetch}));
  };
  constexpr int32_t kEnd = 131072;
  for (int32_t end = kEnd + 1; end <= kEnd + kPageTokens; ++end) {
    ASSERT_EQ(key(end), key(kEnd + 1)) << end;
  }
  EXPECT_NE(key(kEnd), key(kEnd, kEnd / kPageTokens));  // nothing is fetched: one group
  const auto predicted = key(kEnd, 0, {.depth = 1, .rows = 50});
  EXPECT_NE(key(kEnd), predicted);
  EXPECT_NE(predicted, key(kEnd, 0, {.depth = 2, .rows = 50}));
}

TEST(StepPlan, PredictionsGetTheHotRowsThatNoSetTakes) {
  const StepSettings settings = settings_with(false, 250);
  const MemberLoad member = decoding(settings, 5000);
  StepInput input{.members = {&member, 1},
                  .held = held_for(settings, 5000),
                  .prefetch = {.depth = 1, .rows = 60}};
  EXPECT_EQ(plan_step(settings, input).prefetch.rows, 60);
  input.prefetch.rows = 1000;
  EXPECT_EQ(plan_step(settings, input).prefetch.rows, 100);  // as long as a list of runners-up
  input.held.selected_capacity = 240;
  EXPECT_EQ(plan_step(settings, input).prefetch.rows, 10);
  input.held.selected_capacity = 250;
  EXPECT_FALSE(plan_step(settings, input).prefetch.on());
}

// With fewer than eight sets of hot rows no list names any tokens.
TEST(StepPlan, RunnersUpNeedEightSetsOfHotRows) {
  for (const int hot_rows : {799, 800}) {
    StepSettings settings = settings_with(false, hot_rows);
    settings.prefetch.depth = 1;
    const MemberLoad member = decoding(settings, 5000);
    const StepInput input{.members = {&member, 1},
                          .held = held_for(settings, 5000),
                          .prefetch = {.depth = 1, .rows = 60, .runners_up = true}};
    EXPECT_EQ(plan_step(settings, input).prefetch.on(), hot_rows == 800) << hot_rows;
  }
}

// Ranking them takes time, which a fast link does not give back. A depth that is given stays.
TEST(StepPlan, RunnersUpPayOnASlowLink) {
  for (const double bandwidth : {1e9, 400e9}) {
    for (const std::optional<int> depth : {std::optional<int>(), {1}}) {
      StepSettings settings = settings_with(false, 1000);
      settings.rates.link_bandwidth = bandwidth;
      settings.rates.link_latency = 1e-6;
      settings.prefetch.depth = depth;
      GroupMemo memo(settings);
      const MemberLoad member = decoding(settings, 5000);
      StepInput input{.members = {&member, 1},
                      .held = held_for(settings, 5000),
                      .prefetch = {.runners_up = true}};
      for (GroupMemo* remembered : {&memo, &memo, static_cast<GroupMemo*>(nullptr)}) {
        input.prefetch.depth = 0;  // the first step has no list and writes one
        const PrefetchPlan first = plan_step(settings, input, remembered).prefetch;
        EXPECT_EQ(first.runners_up, depth.has_value() || bandwidth == 1e9);
        EXPECT_FALSE(first.on());
        input.prefetch = {.depth = 1, .rows = 60, .runners_up = true};
        EXPECT_EQ(plan_step(settings, input, remembered).prefetch.on(), first.runners_up);
      }
    }
  }
}

// What the last steps fetched ahead, used and missed overrules what a trace led to expect.
TEST(StepPlan, RunnersUpPayByTheCountsOfTheLastSteps) {
  StepSettings settings = settings_with(false, 1000);
  settings.rates.link_bandwidth = 1e9;
  settings.rates.link_latency = 1e-6;
  GroupMemo memo(settings);
  const MemberLoad member = decoding(settings, 5000);
  const auto on = [&](PrefetchCounts counts, double layer_seconds, bool trial = false) {
    const StepInput input{.members = {&member, 1},
                          .held = held_for(settings, 5000),
                          .prefetch = {.depth = 1,
                                       .rows = 60,
                                       .runners_up = true,
                                       .trial = trial,
                                       .counts = counts,
                                       .layer_seconds = layer_seconds}};
    return plan_step(settings, input, &memo).prefetch.on();
  };
  EXPECT_TRUE(on({}, 0));
  const PrefetchCounts useful{.missing = 0.1, .coverage = 0.6, .ahead = 0.1};
  EXPECT_TRUE(on(useful, 1e-3));
  EXPECT_FALSE(on({.missing = 0.0001, .coverage = 0.6, .ahead = 0.0001}, 1e-3)) << "few miss";
  // The link still moves them when the layer's own misses are due.
  EXPECT_FALSE(on({.missing = 0.1, .coverage = 0.6, .ahead = 8}, 100e-6));
  EXPECT_TRUE(on({.missing = 0.1, .coverage = 0.01, .ahead = 8}, 100e-6, true)) << "a trial";
}

TEST(StepPlan, AMemoChangesNothing) {
  const StepSettings settings = settings_with(false);
  GroupMemo memo(settings);
  const DecodeCapacities held = held_for(settings, 200000);
  for (const int32_t end : {500, 131072, 131073, 131100, 700, 700, 131072}) {
    const std::vector<MemberLoad> members = {decoding(settings, end), decoding(settings, 9000)};
    const StepInput input{.members = members, .held = held};
    EXPECT_EQ(plan_step(settings, input, &memo).layers, plan_step(settings, input).layers) << end;
  }
}

}  // namespace
}  // namespace fasa::testing
