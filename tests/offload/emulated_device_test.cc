// Properties of the emulated device alone: modelled times, failures that arrive late, real
// concurrency.
#include "offload/emulated/emulated_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <latch>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "runtime/base/error.h"

namespace fasa {
namespace {

constexpr size_t kChunk = 64 * 1024;

DeviceOptions round_figures() {
  DeviceOptions options;
  options.name = "emulated";
  options.threads = 1;
  options.link_bandwidth = kChunk;  // a chunk a second
  options.link_latency = 0.5;
  options.memory_bandwidth = 1000;
  options.kernels = KernelCosts::with_launch(0.25);
  return options;
}

class EmulatedDeviceTest : public ::testing::Test {
 protected:
  EmulatedDevice device{round_figures()};
  Buffer buffer = device.allocate(MemorySpace::kDevice, 16 * kChunk, "test");
  std::vector<std::byte> host = std::vector<std::byte>(16 * kChunk);
  Stream a = device.create_stream(StreamPriority::kNormal, "a");
  Stream b = device.create_stream(StreamPriority::kNormal, "b");
  Stream urgent = device.create_stream(StreamPriority::kHigh, "urgent");

  void h2d(const Stream& stream, size_t bytes, size_t at = 0) {
    device.copy(buffer.data() + at, host.data() + at, bytes, CopyKind::kHostToDevice,
                stream.view());
  }
  void kernel(const Stream& stream, const KernelWork& work) {
    device.launch(stream.view(), "kernel", [work] { return work; });
  }
  Event mark(const Stream& stream) {
    Event event = device.create_event();
    device.record(event.view(), stream.view());
    return event;
  }
  double at(const Event& event) {
    device.synchronize(event.view());
    return device.seconds_at(event.view());
  }
};

TEST_F(EmulatedDeviceTest, CopiesFillsAndKernelsTakeTheirTime) {
  h2d(a, 2 * kChunk);
  const Event copied = mark(a);
  device.fill(buffer.data(), 0, 500, a.view());
  const Event filled = mark(a);
  device.copy(buffer.data(), buffer.data() + 8000, 1500, CopyKind::kDeviceToDevice, a.view());
  const Event moved = mark(a);
  kernel(a, {.device_bytes = 3000, .h2d_bytes = 0, .d2h_bytes = 0});
  const Event computed = mark(a);
  kernel(a, {.device_bytes = 0, .h2d_bytes = kChunk, .d2h_bytes = 0});
  const Event gathered = mark(a);
  EXPECT_DOUBLE_EQ(at(gathered), 9.5);
  EXPECT_DOUBLE_EQ(at(computed), 7.75);
  EXPECT_DOUBLE_EQ(at(moved), 4.5);
  EXPECT_DOUBLE_EQ(at(filled), 3);
  EXPECT_DOUBLE_EQ(at(copied), 2.5);
  const TransferTotals totals = device.transfers();
  EXPECT_EQ(totals.h2d_bytes, 3 * kChunk);
  EXPECT_EQ(totals.h2d_operations, 2u);
  EXPECT_DOUBLE_EQ(totals.h2d_seconds, 3);
  EXPECT_EQ(totals.d2h_operations, 0u);
}

TEST_F(EmulatedDeviceTest, UrgentTransfersOvertake) {
  h2d(a, 8 * kChunk);
  kernel(urgent, {.device_bytes = 1000, .h2d_bytes = 0, .d2h_bytes = 0});  // until 1.25
  h2d(urgent, kChunk, 8 * kChunk);
  const Event slow = mark(a), fast = mark(urgent);
  EXPECT_DOUBLE_EQ(at(fast), 3.5);  // link 2-3
  EXPECT_DOUBLE_EQ(at(slow), 9.5);
}

TEST_F(EmulatedDeviceTest, WorkAfterASynchronizeStartsNoEarlier) {
  h2d(a, kChunk);
  device.synchronize(a.view());  // 1.5
  kernel(b, {});
  EXPECT_DOUBLE_EQ(at(mark(b)), 1.75);
}

TEST_F(EmulatedDeviceTest, StreamsReallyRunConcurrently) {
  std::latch both(2);  // neither work can pass it alone
  for (const Stream* stream : {&a, &b}) {
    device.launch(stream->view(), "meet", [&both] {
      both.arrive_and_wait();
      return KernelWork{};
    });
  }
  device.synchronize(a.view());
  device.synchronize(b.view());
  EXPECT_TRUE(both.try_wait());
}

TEST_F(EmulatedDeviceTest, TheHostDoesNotWaitToEnqueue) {
  std::promise<void> gate;
  auto opened = gate.get_future().share();
  device.launch(a.view(), "gated", [opened] {
    opened.wait();
    return KernelWork{};
  });
  const Event event = mark(a);
  EXPECT_FALSE(device.done(event.view()));
  gate.set_value();
  device.synchronize(event.view());
  EXPECT_TRUE(device.done(event.view()));
}

// A wait refers to the event's recording at the time the wait is enqueued.
TEST_F(EmulatedDeviceTest, WaitsMeanTheRecordingOfTheirTime) {
  const Event event = mark(a);
  device.wait(b.view(), event.view());
  std::promise<void> gate, reached;
  auto opened = gate.get_future().share();
  device.launch(a.view(), "gated", [opened] {
    opened.wait();
    return KernelWork{};
  });
  device.record(event.view(), a.view());
  device.launch(b.view(), "reached", [&reached] {
    reached.set_value();
    return KernelWork{};
  });
  reached.get_future().wait();
  EXPECT_FALSE(device.done(event.view()));
  gate.set_value();
  device.synchronize(a.view());
}

TEST_F(EmulatedDeviceTest, FailurePoisonsWhatComesAfterIt) {
  const Event before = mark(a);
  device.launch(a.view(), "gather", []() -> KernelWork { throw std::runtime_error("lost"); });
  bool ran = false;
  const auto touch = [&ran] {
    ran = true;
    return KernelWork{};
  };
  device.launch(a.view(), "skipped", touch);
  const Event after = mark(a);
  device.wait(b.view(), after.view());
  device.launch(b.view(), "skipped too", touch);
  const Event further = mark(b);
  device.wait(urgent.view(), before.view());
  int value = 0;
  device.launch(urgent.view(), "unconcerned", [&value] {
    value = 1;
    return KernelWork{};
  });

  const auto message = ::testing::AllOf(::testing::HasSubstr("'gather'"),
                                        ::testing::HasSubstr("'a'"), ::testing::HasSubstr("lost"));
  for (const Stream* stream : {&a, &b}) {
    try {
      device.synchronize(stream->view());
      ADD_FAILURE() << "no error";
    } catch (const DeviceError& error) {
      EXPECT_THAT(error.what(), message);
    }
  }
  EXPECT_THROW(device.synchronize(further.view()), DeviceError);
  EXPECT_THROW(device.done(after.view()), DeviceError);
  EXPECT_THROW(device.seconds_at(after.view()), DeviceError);
  EXPECT_FALSE(ran);
  EXPECT_NO_THROW(device.synchronize(before.view()));
  EXPECT_NO_THROW(device.synchronize(urgent.view()));
  EXPECT_EQ(value, 1);
}

TEST_F(EmulatedDeviceTest, CopiesOutsideOfTheirSideAreRefused) {
  const auto copy = [&](void* to, const void* from, size_t bytes, CopyKind kind) {
    device.copy(to, from, bytes, kind, a.view());
  };
  std::byte* const end = buffer.data() + buffer.bytes();
  EXPECT_THROW(copy(host.data(), host.data() + 64, 64, CopyKind::kHostToDevice), UsageError);
  EXPECT_THROW(copy(buffer.data(), end - 64, 64, CopyKind::kHostToDevice), UsageError);
  EXPECT_THROW(copy(end - 63, host.data(), 64, CopyKind::kHostToDevice), UsageError);
  EXPECT_THROW(copy(host.data(), end, 1, CopyKind::kDeviceToHost), UsageError);
  EXPECT_THROW(copy(buffer.data() - 1, host.data(), 2, CopyKind::kHostToHost), UsageError);
  EXPECT_THROW(device.fill(host.data(), 0, 1, a.view()), UsageError);
  EXPECT_NO_THROW(copy(end - 64, host.data(), 64, CopyKind::kHostToDevice));
  EXPECT_NO_THROW(device.synchronize(a.view()));
}

TEST_F(EmulatedDeviceTest, StreamsOfOthersAreRefused) {
  EXPECT_THROW(device.launch({}, "kernel", [] { return KernelWork{}; }), UsageError);
}

TEST_F(EmulatedDeviceTest, FreeingWaitsForWorkInFlight) {
  int value = 0;
  Buffer taken = device.allocate(MemorySpace::kDevice, 4000, "test");
  for (int i = 0; i < 50; ++i) {
    device.launch(a.view(), "write", [data = taken.data(), &value, i] {
      std::memset(data, i, 4000);
      ++value;
      return KernelWork{};
    });
  }
  taken = {};
  EXPECT_EQ(value, 50);
  // No deadlock where the work owns memory, either.
  auto owned = std::make_shared<Buffer>(device.allocate(MemorySpace::kHost, 4000, "test"));
  device.launch(a.view(), "own", [owned = std::move(owned)] {
    std::memset(owned->data(), 1, 4000);
    return KernelWork{};
  });
  device.synchronize(a.view());
  EXPECT_EQ(device.memory(MemorySpace::kHost).used_bytes, 0u);
}

TEST_F(EmulatedDeviceTest, PinnedMemoryIsLimited) {
  DeviceOptions options = round_figures();
  options.pinned_memory = 100;
  options.host_memory = 1000;
  EmulatedDevice limited(options);
  const Buffer first = limited.allocate(MemorySpace::kHost, 60, "test");
  try {
    limited.allocate(MemorySpace::kHost, 41, "row pages");
    FAIL() << "passed its limit";
  } catch (const BudgetError& error) {
    EXPECT_EQ(error.limit(), "pinned_memory");
  }
  EXPECT_EQ(limited.memory(MemorySpace::kHost).used_bytes, 60u);
  EXPECT_NO_THROW(limited.allocate(MemorySpace::kHost, 40, "test"));
}

// One program of random operations, run with different real delays: the device reports the same
// times.
std::vector<double> times_of_random_program(unsigned delay_seed) {
  constexpr size_t kStreams = 4;
  EmulatedDevice device(round_figures());
  const Buffer buffer = device.allocate(MemorySpace::kDevice, kStreams * 4 * kChunk, "test");
  const Buffer host = device.allocate(MemorySpace::kHost, kStreams * 4 * kChunk, "test");
  std::memset(host.data(), 0, host.bytes());
  std::vector<Stream> streams;
  for (size_t s = 0; s < kStreams; ++s) {
    streams.push_back(
        device.create_stream(s == 1 ? StreamPriority::kHigh : StreamPriority::kNormal, "random"));
  }
  std::vector<Event> events;
  std::mt19937 program(7), delays(delay_seed);
  for (int i = 0; i < 60; ++i) {
    const size_t s = program() % kStreams;
    const StreamView stream = streams[s].view();
    std::byte* const on_device = buffer.data() + s * 4 * kChunk;
    std::byte* const on_host = host.data() + s * 4 * kChunk;
    const unsigned choice = program() % 8;
    const size_t bytes = 1 + program() % (4 * kChunk);
    const int spin = static_cast<int>(delays() % 20000);
    if (choice < 2) {
      device.copy(on_device, on_host, bytes, CopyKind::kHostToDevice, stream);
    } else if (choice == 2) {
      device.copy(on_host, on_device, bytes, CopyKind::kDeviceToHost, stream);
    } else if (choice == 3 && !events.empty()) {
      device.wait(stream, events[program() % events.size()].view());
    } else if (choice == 4) {
      device.synchronize(stream);
    } else {
      device.launch(stream, "kernel", [spin, bytes] {
        for (std::atomic<int> n = 0; n < spin; ++n) continue;
        return KernelWork{
            .device_bytes = bytes % 5000, .h2d_bytes = bytes % 3 * 1000, .d2h_bytes = 0};
      });
    }
    events.push_back(device.create_event());
    device.record(events.back().view(), stream);
  }
  std::vector<double> times;
  for (const Event& event : events) times.push_back(device.seconds_at(event.view()));
  return times;
}

TEST(EmulatedDeviceTimes, DoNotDependOnHowStreamsReallyInterleave) {
  const std::vector<double> first = times_of_random_program(0);
  EXPECT_GT(first.back(), 0);
  for (unsigned seed = 1; seed <= 100; ++seed) {
    ASSERT_EQ(times_of_random_program(seed), first) << "delays of seed " << seed;
  }
}

}  // namespace
}  // namespace fasa
