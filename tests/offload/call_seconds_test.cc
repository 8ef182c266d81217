// What kernel calls take on the emulated device besides their bytes.
#include "offload/emulated/call_seconds.h"

#include <gtest/gtest.h>

#include <vector>

#include "offload/emulated/emulated_device.h"

namespace fasa {
namespace {

const KernelCosts kCosts;

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
  EXPECT_DOUBLE_EQ(call_seconds(kCosts, select), kCosts.select_seconds(256, 1024, 0));
  sequences[0].hot_rows = 8 * 256;  // worth runners-up
  EXPECT_DOUBLE_EQ(call_seconds(kCosts, select), kCosts.select_seconds(256, 1024, 256));
  sequences[0].mode = StepMode::kPrefill;
  EXPECT_DOUBLE_EQ(call_seconds(kCosts, select), kCosts.select_seconds(200, 0, 0));
}

TEST(CallSeconds, LookingRowsUpReadsTheHotSlotsOfTheLongestList) {
  std::vector<SequenceDesc> sequences = {decoding(10000, 512), decoding(10000, 4096)};
  ResolveParams resolve;
  resolve.step.sequences = sequences.data();
  resolve.step.count = 2;
  EXPECT_DOUBLE_EQ(call_seconds(kCosts, resolve), kCosts.resolve_seconds(4096));
  EXPECT_DOUBLE_EQ(call_seconds(kCosts, FetchParams{resolve}), kCosts.resolve_seconds(4096));
  ClaimSlotsParams claim;
  claim.step = resolve.step;
  EXPECT_DOUBLE_EQ(call_seconds(kCosts, claim), kCosts.resolve_seconds(4096));
  for (SequenceDesc& sequence : sequences) sequence.access = RowAccess::kLocal;
  EXPECT_DOUBLE_EQ(call_seconds(kCosts, resolve), kCosts.launch);
}

TEST(CallSeconds, AFoldIsAKernelOfItsOwn) {
  AttendParams attend;
  EXPECT_DOUBLE_EQ(call_seconds(kCosts, attend), kCosts.launch);
  float partials = 0;
  attend.partials = &partials;
  EXPECT_DOUBLE_EQ(call_seconds(kCosts, attend), kCosts.attend);
  attend.phase = AttendPhase::kReadyTiles;
  EXPECT_DOUBLE_EQ(call_seconds(kCosts, attend), kCosts.launch);
}

TEST(CallSeconds, EveryCostIsInProportionToALaunch) {
  const KernelCosts half = KernelCosts::with_launch(kCosts.launch / 2);
  EXPECT_DOUBLE_EQ(half.select_seconds(256, 1024, 64), kCosts.select_seconds(256, 1024, 64) / 2);
  EXPECT_DOUBLE_EQ(half.resolve_seconds(4096), kCosts.resolve_seconds(4096) / 2);
  EXPECT_DOUBLE_EQ(half.attend, kCosts.attend / 2);
  EXPECT_EQ(KernelCosts::with_launch(kCosts.launch), kCosts);
}

TEST(CallSeconds, AreOnTheEmulatedDevicesClock) {
  DeviceOptions options;
  options.name = "emulated";
  options.threads = 1;
  options.launch_seconds = 0.25;
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
