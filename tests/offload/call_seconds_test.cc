// What kernel calls take on the emulated device besides their bytes.
#include "offload/emulated/call_seconds.h"

#include <gtest/gtest.h>

#include <vector>

#include "offload/emulated/emulated_device.h"

namespace fasa {
namespace {

const KernelCosts kCosts;

double fixed(const KernelCall& call) { return call_seconds(kCosts, call).fixed; }

SequenceDesc decoding(int length, int hot_rows) {
  SequenceDesc sequence;
  sequence.tokens = 1;
  sequence.start = length - 1;
  sequence.access = RowAccess::kOverLink;
  sequence.hot_rows = hot_rows;
  return sequence;
}

TEST(CallSeconds, ASelectRanksWhatItLists) {
  std::vector<SequenceDesc> sequences = {decoding(10000, 0), decoding(200, 0)};
  SelectParams select;
  select.step.sequences = sequences.data();
  select.step.count = 2;
  select.selected_capacity = 256;
  select.low_bit.capacity = 1024;
  select.runners_up.capacity = 512;
  EXPECT_DOUBLE_EQ(fixed(select), kCosts.select_seconds(256, 1024, 0));
  sequences[0].hot_rows = 8 * 256;  // worth runners-up
  EXPECT_DOUBLE_EQ(fixed(select), kCosts.select_seconds(256, 1024, 256));
  sequences[0].mode = StepMode::kPrefill;
  EXPECT_DOUBLE_EQ(fixed(select), kCosts.select_seconds(200, 0, 0));
}

TEST(CallSeconds, LookingRowsUpReadsTheHotSlotsOfTheLongestList) {
  std::vector<SequenceDesc> sequences = {decoding(10000, 512), decoding(10000, 4096)};
  ResolveParams resolve;
  resolve.step.sequences = sequences.data();
  resolve.step.count = 2;
  EXPECT_DOUBLE_EQ(fixed(resolve), kCosts.resolve_seconds(4096));
  EXPECT_DOUBLE_EQ(fixed(FetchParams{resolve}), kCosts.resolve_seconds(4096));
  ClaimSlotsParams claim;
  claim.step = resolve.step;
  EXPECT_DOUBLE_EQ(fixed(claim), kCosts.resolve_seconds(4096));
  for (SequenceDesc& sequence : sequences) sequence.access = RowAccess::kLocal;
  EXPECT_DOUBLE_EQ(fixed(resolve), kCosts.launch);
}

TEST(CallSeconds, PagesAreReadOnceForTokensTogether) {
  std::vector<SequenceDesc> tokens(4, decoding(64 * 1000, 0));
  tokens[3].mode = StepMode::kPrefill;  // takes no part
  SelectParams select;
  select.step.sequences = tokens.data();
  select.step.count = 4;
  const CallSeconds alone = call_seconds(kCosts, select);
  EXPECT_DOUBLE_EQ(alone.byte, kCosts.scored_byte);
  EXPECT_EQ(alone.read, 1);
  select.step.together = 2;  // the second pair has one token
  const CallSeconds together = call_seconds(kCosts, select);
  EXPECT_DOUBLE_EQ(together.byte, alone.byte * (2 + KernelCosts::kScoredAgain) / 3);
  EXPECT_DOUBLE_EQ(together.read, 2.0 / 3);

  std::vector<int32_t> sizes(4, 0), counts(4, 1000);
  AttendParams attend;
  attend.step = select.step;
  attend.step.layout.kv_heads = 1;
  attend.selected_sizes = sizes.data();
  attend.low_bit_pages = {.capacity = 1000, .counts = counts.data()};
  EXPECT_LT(call_seconds(kCosts, attend).byte, kCosts.attended_byte);
  attend.phase = AttendPhase::kRemainingTiles;  // of the set alone
  sizes = {512, 512, 512, 512};
  attend.end = 512;
  EXPECT_DOUBLE_EQ(call_seconds(kCosts, attend).byte, kCosts.attended_byte);
}

TEST(CallSeconds, AFoldIsAKernelOfItsOwn) {
  AttendParams attend;
  EXPECT_DOUBLE_EQ(fixed(attend), kCosts.launch);
  float partials = 0;
  attend.partials = &partials;
  EXPECT_DOUBLE_EQ(fixed(attend), kCosts.attend);
  attend.phase = AttendPhase::kReadyTiles;
  EXPECT_DOUBLE_EQ(fixed(attend), kCosts.launch);
}

TEST(CallSeconds, SomeKernelsAreBoundByInstructions) {
  EXPECT_EQ(call_seconds(kCosts, SelectParams{}).byte, kCosts.scored_byte);
  EXPECT_EQ(call_seconds(kCosts, AttendParams{}).byte, kCosts.attended_byte);
  EXPECT_EQ(call_seconds(kCosts, PrefillParams{}).operation, kCosts.prompt_operation);
  EXPECT_EQ(call_seconds(kCosts, GatherParams{}).byte, 0);
}

// A GPU of half the multiprocessors takes twice as long for the same instructions.
TEST(CallSeconds, RatesAreThoseOfTheMultiprocessors) {
  KernelCosts whole, half;
  whole.set_rates(100e9, 0);
  half.set_rates(50e9, 0);
  EXPECT_DOUBLE_EQ(half.scored_byte, 2 * whole.scored_byte);
  EXPECT_DOUBLE_EQ(half.attended_byte, 2 * whole.attended_byte);
  EXPECT_DOUBLE_EQ(half.prompt_operation, 2 * whole.prompt_operation);
  half.set_rates(50e9, 1e12);  // products take longer
  EXPECT_DOUBLE_EQ(half.prompt_operation, 1 / (KernelCosts::kOfPeak * 1e12));
}

TEST(CallSeconds, EveryCostIsInProportionToALaunch) {
  const KernelCosts half = KernelCosts::with_launch(kCosts.launch / 2);
  EXPECT_DOUBLE_EQ(half.select_seconds(256, 1024, 64), kCosts.select_seconds(256, 1024, 64) / 2);
  EXPECT_DOUBLE_EQ(half.resolve_seconds(4096), kCosts.resolve_seconds(4096) / 2);
  EXPECT_DOUBLE_EQ(half.attend, kCosts.attend / 2);
  EXPECT_DOUBLE_EQ(half.scored_byte, kCosts.scored_byte / 2);
  EXPECT_EQ(KernelCosts::with_launch(kCosts.launch), kCosts);
}

TEST(CallSeconds, AreOnTheEmulatedDevicesClock) {
  DeviceOptions options;
  options.name = "emulated";
  options.threads = 1;
  options.kernels = KernelCosts::with_launch(0.25);
  EmulatedDevice device(options);
  const KernelCosts& costs = device.traits().rates.kernels;
  EXPECT_DOUBLE_EQ(costs.launch, 0.25);
  const Stream stream = device.create_stream(StreamPriority::kNormal, "compute");
  const Event event = device.create_event();
  device.enqueue(SelectParams{}, stream.view());
  device.enqueue(GatherParams{}, stream.view());
  device.record(event.view(), stream.view());
  device.synchronize(event.view());
  EXPECT_DOUBLE_EQ(device.seconds_at(event.view()), costs.select + costs.launch);
}

}  // namespace
}  // namespace fasa
