#include "runtime/profile/profile.h"

#include <gtest/gtest.h>

#include "runtime/profile/profiled_decode.h"
#include "tests/support/synthetic_options.h"
#include "tests/support/traces.h"

namespace fasa::testing {
namespace {

constexpr TimelineStream kComputeStream = 3;
constexpr TimelineStream kCopyStream = 5;
constexpr TimelineStream kPrefetchStream = 6;

TimelineEntry work(const char* name, TimelineStream stream, OperationTag tag, TimeSpan span) {
  TimelineEntry entry;
  entry.name = name;
  entry.stream = stream;
  entry.tag = tag;
  entry.span = span;
  return entry;
}

// The bytes are sent from the operation's start on; the operation ends `latency` after the last
// one.
TimelineEntry gather(TimelineStream stream, OperationTag tag, TimeSpan span, uint64_t bytes,
                     double latency) {
  TimelineEntry entry = work("gather", stream, tag, span);
  entry.work.h2d_bytes = bytes;
  entry.link[0] = {span.start, span.end - latency};
  return entry;
}

TimelineEntry wait(OperationTag tag, TimeSpan span, const char* name, OperationTag awaited) {
  TimelineEntry entry = work("wait", kComputeStream, tag, span);
  entry.kind = TimelineEntry::Kind::kWait;
  entry.awaited = {.stream = kCopyStream, .name = name, .tag = awaited};
  return entry;
}

// Two layers. Layer 0 transfers 100 bytes of misses in 10 s + 1 s of latency, and waits 4 s for
// them. For layer 1 300 bytes were prefetched, a third of which was used; it waits 2 s for the
// claim of slots by a prediction.
ProfiledStep step() {
  const OperationTag first = tag_of(0, Cause::kCompute);
  const OperationTag second = tag_of(1, Cause::kCompute);
  const OperationTag miss = tag_of(0, Cause::kMiss);
  const OperationTag ahead = tag_of(1, Cause::kPrefetch);
  ProfiledStep step;
  step.seconds = 100;
  step.entries = {
      work("select", kComputeStream, first, {0, 20}),
      gather(kCopyStream, miss, {20, 31}, 100, 1),
      work("attend", kComputeStream, first, {20, 27}),
      wait(first, {27, 31}, "gather", miss),
      gather(kPrefetchStream, ahead, {31, 62}, 300, 1),
      work("attend", kComputeStream, first, {31, 40}),
      wait(second, {40, 42}, "claim_slots", ahead),
      work("attend", kComputeStream, second, {42, 90}),
      wait({}, {90, 93}, "copy host to device", tag_of(-1, Cause::kControl)),
      work("logits", kComputeStream, {}, {93, 98}),
  };
  TimelineEntry back = work("write_back", kCopyStream + 9, tag_of(1, Cause::kWriteBack), {0, 1});
  back.work.d2h_bytes = 16;
  step.entries.push_back(back);
  step.fetch.layers.resize(2);
  step.fetch.layers[0] = {.protected_rows = 2, .hits = 1, .misses = 1};
  step.fetch.layers[1] = {.hits = 4, .prefetched = 3, .prefetched_used = 1};
  for (const StepCounters& layer : step.fetch.layers) step.fetch.rows += layer;
  step.overlap = {{.kept = 1, .entries = 2}, {.kept = 3, .entries = 4}};
  return step;
}

TEST(Profile, TellsWhatWasFetchedWhileScoring) {
  ProfiledStep split = step();
  // A second select of layer 0, which overlaps 4 of its gather's 10 s on the link.
  split.entries.push_back(work("select", kComputeStream, tag_of(0, Cause::kCompute), {22, 26}));
  // Predictions and other layers' selects do not count.
  split.entries.push_back(work("select", kComputeStream, tag_of(1, Cause::kCompute), {26, 27}));
  split.entries.push_back(work("select", kComputeStream, tag_of(0, Cause::kPrefetch), {27, 28}));
  Profile profile(2);
  profile.add(step());
  EXPECT_EQ(profile.total().miss_while_scoring, 0);
  profile.add(split);
  EXPECT_DOUBLE_EQ(profile.layers()[0].miss_while_scoring, 40);
  EXPECT_DOUBLE_EQ(profile.layers()[0].scoring_share(), 0.2);  // of both steps
  EXPECT_EQ(profile.layers()[1].scoring_share(), 0);
}

TEST(Profile, DividesTheStepAmongLayers) {
  Profile profile(2);
  profile.add(step());
  const LayerProfile& first = profile.layers()[0];
  const LayerProfile& second = profile.layers()[1];
  EXPECT_DOUBLE_EQ(first.compute, 36);
  EXPECT_DOUBLE_EQ(first.wait(WaitReason::kRows), 4);
  EXPECT_EQ(first.miss.bytes, 100u);
  EXPECT_DOUBLE_EQ(second.compute, 48);
  EXPECT_DOUBLE_EQ(second.wait(WaitReason::kRows), 0);
  EXPECT_DOUBLE_EQ(second.wait(WaitReason::kPredictions), 2);
  EXPECT_EQ(second.prefetch.bytes, 300u);
  EXPECT_EQ(second.wasted_bytes(), 200u);
  EXPECT_EQ(second.write_back_bytes, 16u);
  EXPECT_DOUBLE_EQ(profile.outside().compute, 5);
  EXPECT_DOUBLE_EQ(profile.outside().wait(WaitReason::kTables), 3);
  EXPECT_DOUBLE_EQ(profile.idle(), 2);
}

TEST(Profile, TransfersAreWhatStepsUsed) {
  Profile profile(2);
  profile.add(step());
  const LinkSpeed link = profile.link();
  EXPECT_DOUBLE_EQ(link.seconds_per_byte, 0.1);
  EXPECT_DOUBLE_EQ(link.latency, 1);
  EXPECT_DOUBLE_EQ(profile.transfer(profile.layers()[0]), 11);
  EXPECT_DOUBLE_EQ(profile.transfer(profile.layers()[1]), 31.0 / 3);
  EXPECT_DOUBLE_EQ(profile.hidden(profile.layers()[0]), 1 - 4.0 / 11);
  EXPECT_DOUBLE_EQ(profile.hidden(profile.layers()[1]), 1);
  EXPECT_DOUBLE_EQ(profile.total_transfer(), 11 + 31.0 / 3);
  EXPECT_DOUBLE_EQ(profile.total_hidden(), 1 - 4 / (11 + 31.0 / 3));
}

TEST(Profile, StepsAddUp) {
  Profile once(2);
  once.add(step());
  Profile twice(2);
  twice.add(step());
  twice.add(step());
  EXPECT_EQ(twice.steps(), 2u);
  EXPECT_DOUBLE_EQ(twice.seconds(), 2 * once.seconds());
  EXPECT_DOUBLE_EQ(twice.total().compute, 2 * once.total().compute);
  EXPECT_DOUBLE_EQ(twice.total_transfer(), 2 * once.total_transfer());
  EXPECT_DOUBLE_EQ(twice.total_hidden(), once.total_hidden());
  EXPECT_EQ(twice.total().rows.misses, 2u);
  EXPECT_DOUBLE_EQ(twice.total().overlap.share(), 4.0 / 6);
  EXPECT_EQ(twice.points()[1].miss_bytes, 100u);
  EXPECT_DOUBLE_EQ(twice.points()[1].wait_rows, 4);
}

// Transfers on one stream pay the latency each; parallel ones on several streams pay it once.
TEST(Profile, LatencyIsPaidOncePerRound) {
  const OperationTag miss = tag_of(0, Cause::kMiss);
  ProfiledStep pages;
  pages.entries = {work("attend", kComputeStream, tag_of(0, Cause::kCompute), {0, 1}),
                   gather(kCopyStream, miss, {0, 11}, 100, 1),
                   gather(kCopyStream, miss, {11, 22}, 100, 1)};
  Profile serial(1);
  serial.add(pages);
  EXPECT_DOUBLE_EQ(serial.transfer(serial.layers()[0]), 22);
  pages.entries[2] = gather(kPrefetchStream, miss, {10, 21}, 100, 1);
  Profile parallel(1);
  parallel.add(pages);
  EXPECT_DOUBLE_EQ(parallel.transfer(parallel.layers()[0]), 21);
}

TEST(Profile, NothingMovedIsHidden) {
  Profile profile(3);
  EXPECT_DOUBLE_EQ(profile.total_hidden(), 1);
  EXPECT_DOUBLE_EQ(profile.idle(), 0);
  profile.add({});
  EXPECT_DOUBLE_EQ(profile.total_transfer(), 0);
  EXPECT_DOUBLE_EQ(profile.total_hidden(), 1);
  EXPECT_FALSE(profile.knows_overlap());
}

// The timeline and the runtime's counters agree on bytes and times.
TEST(Profile, AgreesWithTheRuntime) {
  SyntheticOptions settings = small_settings();
  settings.config.prefetch.predictor = PredictorKind::kRunnersUp;
  settings.config.prefetch.depth = 1;
  settings.config.placement.hot_rows = 900;  // eight sets, so that runners-up are listed
  ProfiledSynthetic decode(settings, make_trace());
  for (int i = 0; i < 3; ++i) decode.warm_up();
  for (int i = 0; i < 5; ++i) decode.step();
  const Profile& profile = decode.profile();
  const LayerProfile total = profile.total();
  constexpr uint64_t kRowBytes = 128;
  EXPECT_GT(total.rows.misses, 0u);
  EXPECT_GT(total.rows.prefetched, 0u);
  EXPECT_EQ(total.miss.bytes, total.rows.misses * kRowBytes);
  EXPECT_EQ(total.prefetch.bytes, total.rows.prefetched * kRowBytes);
  EXPECT_EQ(total.write_back_bytes, 5u * 5u * 3u * kRowBytes);
  EXPECT_NEAR(total.compute + total.waiting() + profile.idle(), profile.seconds(),
              1e-6 * profile.seconds());
  const double bandwidth = settings.config.device_options().link_bandwidth;
  EXPECT_NEAR(1 / profile.link().seconds_per_byte, bandwidth, 0.01 * bandwidth);
  EXPECT_NEAR(profile.link().latency, settings.config.link.latency, 1e-9);
  EXPECT_GT(total.overlap.share(), 0);
  EXPECT_LT(total.overlap.share(), 1);
}

}  // namespace
}  // namespace fasa::testing
