// The records that devices make of their streams: names, tags, bytes, times on the device's clock,
// waits.
#include "offload/timeline/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "offload/open_device.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

using Kind = TimelineEntry::Kind;

constexpr size_t kChunk = 64 * 1024;

std::unique_ptr<Device> open(const std::string& name) {
  DeviceOptions options;
  options.name = name;
  options.threads = 1;
  options.link_bandwidth = kChunk;  // a chunk a second
  options.link_latency = 0.5;
  options.memory_bandwidth = 1000;
  options.kernels = KernelCosts::with_launch(0.25);
  return open_device(options);
}

void kernel(Device& device, const Stream& stream, const char* name, const KernelWork& work = {},
            OperationTag tag = {}) {
  device.launch(
      stream.view(), name, [work] { return work; }, tag);
}

// The entries of one kind and stream, by start time.
std::vector<TimelineEntry> entries_of(const Timeline& timeline, Kind kind,
                                      const std::string& stream) {
  std::vector<TimelineEntry> found;
  const auto names = timeline.streams();
  for (const TimelineEntry& entry : timeline.entries()) {
    if (entry.kind == kind && names.at(entry.stream) == stream) found.push_back(entry);
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.span.start < b.span.start; });
  return found;
}

class EveryDevice : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryDevice, RecordsNamesTagsAndBytesInOrder) {
  const auto device = open(GetParam());
  Timeline timeline;
  const Stream early = device->create_stream(StreamPriority::kNormal, "early");
  kernel(*device, early, "before");
  device->set_timeline(&timeline);
  EXPECT_EQ(device->timeline(), &timeline);
  const Stream late = device->create_stream(StreamPriority::kNormal, "late");
  const Buffer buffer = device->allocate(MemorySpace::kDevice, 1000, "test");
  std::vector<std::byte> host(1000);
  const OperationTag control = tag_of(-1, Cause::kControl);
  device->copy(buffer.data(), host.data(), 1000, CopyKind::kHostToDevice, early.view(),
               tag_of(3, Cause::kMiss));
  device->fill(buffer.data(), 0, 500, early.view(), control);
  device->copy(host.data(), buffer.data(), 10, CopyKind::kDeviceToHost, early.view(), control);
  kernel(*device, late, "attend", {.device_bytes = 7, .h2d_bytes = 0, .d2h_bytes = 0}, control);
  device->synchronize(early.view());
  device->synchronize(late.view());
  device->set_timeline(nullptr);
  kernel(*device, late, "after");
  device->synchronize(late.view());

  const auto work = entries_of(timeline, Kind::kWork, "early");
  ASSERT_EQ(work.size(), 3u);
  EXPECT_STREQ(work[0].name, "copy host to device");
  EXPECT_EQ(work[0].tag, (OperationTag{3, Cause::kMiss}));
  EXPECT_EQ(work[0].work.h2d_bytes, 1000u);
  EXPECT_STREQ(work[1].name, "fill");
  EXPECT_EQ(work[1].tag, (OperationTag{-1, Cause::kControl}));
  EXPECT_EQ(work[2].work.d2h_bytes, 10u);
  double last = 0;
  for (const TimelineEntry& entry : work) {
    EXPECT_LE(entry.enqueued, entry.span.start);
    EXPECT_GE(entry.span.start, last);
    EXPECT_GE(entry.span.end, entry.span.start);
    last = entry.span.end;
  }
  const auto other = entries_of(timeline, Kind::kWork, "late");
  ASSERT_EQ(other.size(), 1u);
  EXPECT_STREQ(other[0].name, "attend");
  EXPECT_EQ(other[0].work.device_bytes, 7u);
  EXPECT_EQ(timeline.dropped(), 0u);
}

TEST_P(EveryDevice, SamplesDeviceMemory) {
  const auto device = open(GetParam());
  const Buffer first = device->allocate(MemorySpace::kDevice, 100, "test");
  Timeline timeline;
  device->set_timeline(&timeline);
  { const Buffer second = device->allocate(MemorySpace::kDevice, 50, "test"); }
  const Buffer host = device->allocate(MemorySpace::kHost, 1000, "test");
  std::vector<double> values;
  for (const TimelineSample& sample : timeline.samples()) {
    EXPECT_STREQ(sample.name, kDeviceMemoryCounter);
    values.push_back(sample.value);
  }
  EXPECT_THAT(values, ::testing::ElementsAre(100, 150, 100));
  device->set_timeline(nullptr);
}

TEST_P(EveryDevice, ValuesThatOperationsFindHoldFromTheirEnd) {
  const auto device = open(GetParam());
  Timeline timeline;
  device->set_timeline(&timeline);
  timeline.clear();  // the sample of memory
  const Stream stream = device->create_stream(StreamPriority::kNormal, "test");
  for (int i = 0; i < 3; ++i) {
    kernel(*device, stream, "work", {.device_bytes = 100, .h2d_bytes = 0, .d2h_bytes = 0});
    device->launch(stream.view(), kHitRateCounter, [&timeline, i] {
      timeline.sample_operation(kHitRateCounter, i);
      return KernelWork{};
    });
  }
  device->synchronize(stream.view());
  const auto samples = timeline.samples();
  const auto work = entries_of(timeline, Kind::kWork, "test");
  ASSERT_EQ(samples.size(), 3u);
  ASSERT_EQ(work.size(), 6u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(samples[i].value, static_cast<double>(i));
    EXPECT_EQ(samples[i].seconds, work[2 * i + 1].span.end);
  }
  device->set_timeline(nullptr);
}

TEST_P(EveryDevice, FailedOperationsHaveNoEntry) {
  const auto device = open(GetParam());
  Timeline timeline;
  device->set_timeline(&timeline);
  const Stream stream = device->create_stream(StreamPriority::kNormal, "test");
  kernel(*device, stream, "good");
  try {
    device->launch(stream.view(), "bad", []() -> KernelWork { throw 1; });
    device->synchronize(stream.view());
    FAIL() << "the failure went unnoticed";
  } catch (const DeviceError&) {
  }
  device->set_timeline(nullptr);
  for (const TimelineEntry& entry : timeline.entries()) EXPECT_STREQ(entry.name, "good");
}

TEST_P(EveryDevice, ManyThreadsRecordAndRead) {
  const auto device = open(GetParam());
  Timeline timeline;
  device->set_timeline(&timeline);
  constexpr size_t kThreads = 3, kEach = 300;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const Stream stream = device->create_stream(StreamPriority::kNormal, "test");
      for (size_t i = 0; i < kEach; ++i) {
        kernel(*device, stream, "work", {}, tag_of(static_cast<int>(i), Cause::kCompute));
        if (i % 50 == 0) device->synchronize(stream.view());
      }
      device->synchronize(stream.view());
    });
  }
  while (timeline.size() < kThreads * kEach / 2) EXPECT_LE(timeline.entries().size(), 900u);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(timeline.entries().size(), kThreads * kEach);
  device->set_timeline(nullptr);
}

INSTANTIATE_TEST_SUITE_P(Devices, EveryDevice, ::testing::Values("cpu", "emulated"),
                         [](const auto& tested) { return std::string(tested.param); });

class EmulatedTimeline : public ::testing::Test {
 protected:
  EmulatedTimeline() {
    device->set_timeline(&timeline);
    timeline.clear();
  }
  ~EmulatedTimeline() override { device->set_timeline(nullptr); }

  void h2d(const Stream& stream, size_t chunks, OperationTag tag = {}) {
    device->copy(buffer.data(), host.data(), chunks * kChunk, CopyKind::kHostToDevice,
                 stream.view(), tag);
  }

  std::unique_ptr<Device> device = open("emulated");
  Buffer buffer = device->allocate(MemorySpace::kDevice, 8 * kChunk, "test");
  std::vector<std::byte> host = std::vector<std::byte>(8 * kChunk);
  Timeline timeline;
  Stream compute = device->create_stream(StreamPriority::kNormal, "compute");
  Stream copy = device->create_stream(StreamPriority::kNormal, "copy");
};

TEST_F(EmulatedTimeline, TimesAreTheClocks) {
  kernel(*device, compute, "select", {.device_bytes = 3000, .h2d_bytes = 0, .d2h_bytes = 0});
  kernel(*device, compute, "gather", {.device_bytes = 0, .h2d_bytes = 2 * kChunk, .d2h_bytes = 0});
  device->synchronize(compute.view());
  kernel(*device, compute, "later");
  device->synchronize(compute.view());
  const auto work = entries_of(timeline, Kind::kWork, "compute");
  ASSERT_EQ(work.size(), 3u);
  EXPECT_DOUBLE_EQ(work[0].span.start, 0);
  EXPECT_DOUBLE_EQ(work[0].span.end, 3.25);
  EXPECT_DOUBLE_EQ(work[1].span.start, 3.25);
  EXPECT_DOUBLE_EQ(work[1].link[0].start, 3.5);
  EXPECT_DOUBLE_EQ(work[1].link[0].end, 5.5);  // two chunks
  EXPECT_DOUBLE_EQ(work[1].span.end, 6);       // and the latency
  EXPECT_EQ(work[1].link[1].seconds(), 0);
  EXPECT_DOUBLE_EQ(work[1].enqueued, 0);
  EXPECT_DOUBLE_EQ(work[2].enqueued, 6);  // the host had waited
}

TEST_F(EmulatedTimeline, WaitsSayForWhatAndHowLong) {
  const Event copied = device->create_event();
  const OperationTag tag = tag_of(5, Cause::kCompute);
  h2d(copy, 2, tag_of(5, Cause::kMiss));  // until 2.5
  device->record(copied.view(), copy.view());
  kernel(*device, compute, "attend", {.device_bytes = 750, .h2d_bytes = 0, .d2h_bytes = 0},
         tag);  // 1
  device->wait(compute.view(), copied.view(), tag);
  kernel(*device, compute, "attend", {}, tag);
  device->wait(compute.view(), copied.view(), tag);  // no longer holds up any stream
  kernel(*device, compute, "attend", {}, tag);
  device->synchronize(compute.view());
  const auto waits = entries_of(timeline, Kind::kWait, "compute");
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_DOUBLE_EQ(waits[0].span.start, 1);
  EXPECT_DOUBLE_EQ(waits[0].span.end, 2.5);
  EXPECT_EQ(waits[0].tag, (OperationTag{5, Cause::kCompute}));
  EXPECT_STREQ(waits[0].awaited.name, "copy host to device");
  EXPECT_EQ(waits[0].awaited.tag, (OperationTag{5, Cause::kMiss}));
  EXPECT_EQ(timeline.streams().at(waits[0].awaited.stream), "copy");
}

// Idle time before the host enqueues a wait does not count as waiting.
TEST_F(EmulatedTimeline, IdleTimeIsNoWait) {
  const Event first = device->create_event(), second = device->create_event();
  h2d(copy, 2);  // until 2.5
  device->record(first.view(), copy.view());
  device->synchronize(first.view());
  h2d(copy, 1);  // until 4
  device->record(second.view(), copy.view());
  device->wait(compute.view(), second.view());
  kernel(*device, compute, "attend");
  device->synchronize(compute.view());
  const auto waits = entries_of(timeline, Kind::kWait, "compute");
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_DOUBLE_EQ(waits[0].span.start, 2.5);
  EXPECT_DOUBLE_EQ(waits[0].span.end, 4);
}

TEST(TimelineChangesNothing, VirtualTimes) {
  const auto seconds = [](Timeline* timeline) {
    const auto device = open("emulated");
    device->set_timeline(timeline);
    const Stream a = device->create_stream(StreamPriority::kHigh, "a");
    const Stream b = device->create_stream(StreamPriority::kNormal, "b");
    const Event event = device->create_event();
    for (int i = 0; i < 20; ++i) {
      kernel(*device, a, "a", {.device_bytes = 100, .h2d_bytes = kChunk, .d2h_bytes = 900});
      kernel(*device, b, "b", {.device_bytes = 900, .h2d_bytes = 3 * kChunk, .d2h_bytes = 0});
      device->record(event.view(), i % 2 == 0 ? a.view() : b.view());
      device->wait(i % 2 == 0 ? b.view() : a.view(), event.view());
    }
    const double at = device->seconds_at(event.view());
    device->synchronize(b.view());
    device->set_timeline(nullptr);
    return at;
  };
  Timeline timeline;
  EXPECT_EQ(seconds(&timeline), seconds(nullptr));
  EXPECT_GT(timeline.size(), 40u);
}

// The first timeline ends while some transfers have no times yet.
TEST(TimelineEnds, WhatHasNoTimesYetIsForgotten) {
  const auto device = open("emulated");
  const Buffer buffer = device->allocate(MemorySpace::kDevice, kChunk, "test");
  std::vector<std::byte> host(kChunk);
  const Stream stream = device->create_stream(StreamPriority::kNormal, "test");
  {
    Timeline timeline;
    device->set_timeline(&timeline);
    device->copy(buffer.data(), host.data(), kChunk, CopyKind::kHostToDevice, stream.view());
    device->set_timeline(nullptr);
  }
  device->synchronize(stream.view());
  Timeline second;
  device->set_timeline(&second);
  kernel(*device, stream, "work");
  device->synchronize(stream.view());
  device->set_timeline(nullptr);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_STREQ(second.entries()[0].name, "work");
}

TEST(TimelineMemory, IsBoundedAndSaysWhatWasDropped) {
  Timeline timeline(1000);
  TimelineEntry entry;
  entry.name = "work";
  for (int i = 0; i < 1500; ++i) {
    entry.tag.layer = static_cast<int16_t>(i);
    timeline.add(entry);
  }
  EXPECT_EQ(timeline.size(), 1000u);
  EXPECT_EQ(timeline.dropped(), 500u);
  const auto rest = timeline.entries(990);
  ASSERT_EQ(rest.size(), 10u);
  EXPECT_EQ(rest.front().tag.layer, 990);
  EXPECT_TRUE(timeline.entries(5000).empty());
  for (int i = 0; i < 1001; ++i) timeline.sample("counter", 0, i);
  EXPECT_EQ(timeline.samples().size(), 1000u);
  EXPECT_EQ(timeline.dropped(), 501u);
  timeline.clear();
  EXPECT_EQ(timeline.size(), 0u);
  EXPECT_EQ(timeline.dropped(), 0u);
}

}  // namespace
}  // namespace fasa
