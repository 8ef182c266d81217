// The contract of every device. Runs over each implementation; a new device is added to kDevices.
// "cuda" is a GPU, skipped where there is none; "fake" is the same device over a fake CUDA runtime
// on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "offload/cuda/cuda_device.h"
#include "offload/open_device.h"
#include "runtime/base/error.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/gpu.h"
#include "tests/support/stepped_device.h"

namespace fasa {
namespace {

constexpr const char* kDevices[] = {"cpu", "emulated", "stepped", "fake"};
constexpr size_t kOddSizes[] = {1, 3, 63, 64, 65, 4095, 4097, 65537, (size_t{1} << 20) + 7};

class DeviceContract : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) == "cuda") FASA_NEEDS_GPU();
  }
  std::unique_ptr<Device> open(std::optional<uint64_t> device_memory = {},
                               std::optional<uint64_t> host_memory = {}) {
    DeviceOptions options;
    options.name = GetParam();
    options.threads = 2;
    options.device_memory = device_memory;
    options.host_memory = host_memory;
    if (options.name == "stepped") {  // a device of the tests
      return std::make_unique<SteppedDevice>(lifo(), options);
    }
    if (options.name == "fake") {
      options.name = "cuda:0";
      return open_device(options, fake_.platform());
    }
    return open_device(options);
  }
  static Stream stream_of(Device& device, StreamPriority priority = StreamPriority::kNormal) {
    return device.create_stream(priority, "test");
  }
  static void launch(Device& device, StreamView stream, const char* name,
                     std::function<KernelWork()> work) {
    if (auto* const cuda = dynamic_cast<CudaDevice*>(&device); cuda != nullptr) {
      cuda->run_on_host(stream, name, std::move(work));
    } else {
      device.launch(stream, name, std::move(work));
    }
  }
  static void run(Device& device, StreamView stream, std::function<void()> work) {
    launch(device, stream, "test kernel", [work = std::move(work)] {
      work();
      return KernelWork{};
    });
  }

 private:
  FakeCuda fake_;  // outlives its devices
};

std::vector<std::byte> random_bytes(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST_P(DeviceContract, SaysWhatItIs) {
  const auto device = open();
  const bool cuda = device->kind() == DeviceKind::kCuda;
  EXPECT_EQ(device->name(), cuda ? "cuda:0" : GetParam());
  EXPECT_EQ(device->unified(), device->kind() == DeviceKind::kCpu);
  EXPECT_EQ(device->unified(), device->traits().unified);
  EXPECT_EQ(device->host_work() == nullptr, cuda);
  EXPECT_EQ(device->graphs() != nullptr, cuda);
  EXPECT_EQ(device->traits().model_calls, cuda);
}

TEST_P(DeviceContract, MemoryIsAlignedAndWritable) {
  const auto device = open();
  const Stream stream = stream_of(*device);
  for (const size_t bytes : kOddSizes) {
    const Buffer on_device = device->allocate(MemorySpace::kDevice, bytes, "test");
    const Buffer on_host = device->allocate(MemorySpace::kHost, bytes, "test");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(on_device.data()) % 64, 0u) << bytes;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(on_host.data()) % 4096, 0u) << bytes;
    EXPECT_EQ(on_device.bytes(), bytes);
    std::memset(on_host.data(), 7, bytes);
    device->fill(on_device.data(), 7, bytes, stream.view());
    device->synchronize(stream.view());
  }
}

TEST_P(DeviceContract, NothingCanBeAllocated) {
  const auto device = open(uint64_t{0}, uint64_t{0});
  const Buffer buffer = device->allocate(MemorySpace::kDevice, 0, "test");
  EXPECT_EQ(buffer.bytes(), 0u);
  EXPECT_THROW(device->allocate(MemorySpace::kDevice, 1, "test"), BudgetError);
  EXPECT_THROW(device->allocate(MemorySpace::kHost, 1, "test"), BudgetError);
}

TEST_P(DeviceContract, DeviceLimitIsExact) {
  const auto device = open(uint64_t{1000});
  Buffer first = device->allocate(MemorySpace::kDevice, 600, "test");
  const Buffer second = device->allocate(MemorySpace::kDevice, 400, "test");
  EXPECT_EQ(device->memory(MemorySpace::kDevice).used_bytes, 1000u);
  try {
    device->allocate(MemorySpace::kDevice, 1, "slice pages");
    FAIL() << "passed its limit";
  } catch (const BudgetError& error) {
    EXPECT_EQ(error.limit(), "device_memory");
    EXPECT_EQ(error.asked_bytes(), 1u);
    EXPECT_EQ(error.capacity_bytes(), 1000u);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("slice pages"));
  }
  EXPECT_EQ(device->memory(MemorySpace::kDevice).used_bytes, 1000u);
  first = {};
  EXPECT_EQ(device->memory(MemorySpace::kDevice).used_bytes, 400u);
  EXPECT_EQ(device->memory(MemorySpace::kDevice).peak_bytes, 1000u);
  EXPECT_EQ(device->memory(MemorySpace::kDevice).limit_bytes, 1000u);
  EXPECT_NO_THROW(device->allocate(MemorySpace::kDevice, 600, "test"));
}

TEST_P(DeviceContract, HostLimitIsExact) {
  const auto device = open({}, uint64_t{1000});
  const Buffer first = device->allocate(MemorySpace::kHost, 1000, "test");
  try {
    device->allocate(MemorySpace::kHost, 1, "row pages");
    FAIL() << "passed its limit";
  } catch (const BudgetError& error) {
    EXPECT_EQ(error.limit(), "host_memory");
  }
  EXPECT_EQ(device->memory(MemorySpace::kHost).used_bytes, 1000u);
  EXPECT_EQ(device->memory(MemorySpace::kHost).limit_bytes, 1000u);
}

TEST_P(DeviceContract, HugeRequestsAreBudgetErrors) {
  const auto device = open();
  EXPECT_THROW(device->allocate(MemorySpace::kHost, size_t{1} << 60, "test"), BudgetError);
  EXPECT_THROW(device->allocate(MemorySpace::kDevice, size_t{1} << 60, "test"), BudgetError);
  EXPECT_EQ(device->memory(MemorySpace::kHost).used_bytes, 0u);
  EXPECT_EQ(device->memory(MemorySpace::kDevice).used_bytes, 0u);
}

TEST_P(DeviceContract, BuffersMove) {
  const auto device = open();
  Buffer a = device->allocate(MemorySpace::kDevice, 100, "test");
  std::byte* const data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  b = device->allocate(MemorySpace::kDevice, 50, "test");
  EXPECT_EQ(device->memory(MemorySpace::kDevice).used_bytes, 50u);
}

TEST_P(DeviceContract, CopiesCarryEveryByte) {
  const auto device = open();
  const Stream stream = stream_of(*device);
  for (const size_t bytes : kOddSizes) {
    const auto source = random_bytes(bytes, 1);
    std::vector<std::byte> result(bytes + 2, std::byte{0x55});
    const Buffer a = device->allocate(MemorySpace::kDevice, bytes + 5, "test");
    const Buffer b = device->allocate(MemorySpace::kDevice, bytes + 3, "test");
    device->copy(a.data() + 5, source.data(), bytes, CopyKind::kHostToDevice, stream.view());
    device->copy(b.data() + 3, a.data() + 5, bytes, CopyKind::kDeviceToDevice, stream.view());
    device->copy(result.data() + 1, b.data() + 3, bytes, CopyKind::kDeviceToHost, stream.view());
    device->synchronize(stream.view());
    EXPECT_EQ(std::memcmp(result.data() + 1, source.data(), bytes), 0) << bytes;
    EXPECT_EQ(result.front(), std::byte{0x55}) << bytes;
    EXPECT_EQ(result.back(), std::byte{0x55}) << bytes;
    std::vector<std::byte> again(bytes);
    device->copy(again.data(), source.data(), bytes, CopyKind::kHostToHost, stream.view());
    device->synchronize(stream.view());
    EXPECT_EQ(again, source);
  }
}

TEST_P(DeviceContract, CopiesOfNothingDoNothing) {
  const auto device = open();
  const Stream stream = stream_of(*device);
  device->copy(nullptr, nullptr, 0, CopyKind::kHostToDevice, stream.view());
  device->fill(nullptr, 1, 0, stream.view());
  device->synchronize(stream.view());
  EXPECT_EQ(device->transfers().h2d_operations, 0u);
}

TEST_P(DeviceContract, FillsCarryEveryByte) {
  const auto device = open();
  const Stream stream = stream_of(*device);
  const Buffer buffer = device->allocate(MemorySpace::kDevice, 1003, "test");
  device->fill(buffer.data(), 0xab, 1003, stream.view());
  device->fill(buffer.data() + 1, 0, 1001, stream.view());
  std::vector<std::byte> result(1003);
  device->copy(result.data(), buffer.data(), 1003, CopyKind::kDeviceToHost, stream.view());
  device->synchronize(stream.view());
  std::vector<std::byte> expected(1003, std::byte{0});
  expected.front() = expected.back() = std::byte{0xab};
  EXPECT_EQ(result, expected);
}

TEST_P(DeviceContract, TransfersAreCounted) {
  const auto device = open();
  const Stream stream = stream_of(*device);
  const Buffer buffer = device->allocate(MemorySpace::kDevice, 1000, "test");
  std::vector<std::byte> host(1000);
  device->copy(buffer.data(), host.data(), 1000, CopyKind::kHostToDevice, stream.view());
  device->copy(buffer.data(), host.data(), 7, CopyKind::kHostToDevice, stream.view());
  device->copy(host.data(), buffer.data(), 100, CopyKind::kDeviceToHost, stream.view());
  const TransferTotals totals = device->transfers();
  EXPECT_EQ(totals.h2d_bytes, 1007u);
  EXPECT_EQ(totals.h2d_operations, 2u);
  EXPECT_EQ(totals.d2h_bytes, 100u);
  EXPECT_EQ(totals.d2h_operations, 1u);
  device->synchronize(stream.view());
  // The emulated link's bandwidth is exact; other devices may measure no time for so few bytes.
  if (std::string_view(GetParam()) == "emulated") {
    EXPECT_DOUBLE_EQ(totals.h2d_seconds, 1007 / 25e9);
  } else {
    EXPECT_LT(totals.h2d_seconds, 1);
  }
}

TEST_P(DeviceContract, AStreamIsInOrder) {
  const auto device = open();
  const Stream stream = stream_of(*device);
  std::vector<int> seen;
  for (int i = 0; i < 1000; ++i) run(*device, stream.view(), [&seen, i] { seen.push_back(i); });
  device->synchronize(stream.view());
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(seen, expected);
}

TEST_P(DeviceContract, EventsOrderStreams) {
  const auto device = open();
  const Stream a = stream_of(*device), b = stream_of(*device, StreamPriority::kHigh);
  const Event from_a = device->create_event(), from_b = device->create_event();
  int64_t value = 1;  // not atomic: only the events keep the streams apart
  int64_t expected = 1;
  for (int i = 0; i < 200; ++i) {
    device->wait(a.view(), from_b.view());
    run(*device, a.view(), [&value] { value = value * 3 % 1000003; });
    device->record(from_a.view(), a.view());
    device->wait(b.view(), from_a.view());
    run(*device, b.view(), [&value] { value = value + 5; });
    device->record(from_b.view(), b.view());
    expected = expected * 3 % 1000003 + 5;
  }
  device->synchronize(from_b.view());
  EXPECT_EQ(value, expected);
  EXPECT_TRUE(device->done(from_a.view()));
  EXPECT_TRUE(device->done(from_b.view()));
}

TEST_P(DeviceContract, EventCoversWhatCameBefore) {
  const auto device = open();
  const Stream stream = stream_of(*device);
  const Event event = device->create_event();
  std::atomic<int> count = 0;
  for (int i = 0; i < 50; ++i) run(*device, stream.view(), [&count] { ++count; });
  device->record(event.view(), stream.view());
  device->synchronize(event.view());
  EXPECT_EQ(count, 50);
  EXPECT_TRUE(device->done(event.view()));
}

TEST_P(DeviceContract, RecordingAgainMovesTheEvent) {
  const auto device = open();
  const Stream a = stream_of(*device), b = stream_of(*device);
  const Event event = device->create_event();
  int value = 0;
  device->record(event.view(), a.view());
  device->synchronize(event.view());
  const double early = device->seconds_at(event.view());
  run(*device, a.view(), [&value] { value = 42; });
  device->record(event.view(), a.view());
  int seen = 0;
  device->wait(b.view(), event.view());
  run(*device, b.view(), [&] { seen = value; });
  device->synchronize(b.view());
  EXPECT_EQ(seen, 42);
  EXPECT_GE(device->seconds_at(event.view()), early);
  // On another stream as well.
  run(*device, b.view(), [&value] { value = 43; });
  device->record(event.view(), b.view());
  device->synchronize(event.view());
  EXPECT_EQ(value, 43);
}

TEST_P(DeviceContract, UnrecordedEventsHoldNobodyUp) {
  const auto device = open();
  const Stream stream = stream_of(*device);
  const Event event = device->create_event();
  int value = 0;
  device->wait(stream.view(), event.view());
  run(*device, stream.view(), [&value] { value = 1; });
  device->synchronize(stream.view());
  EXPECT_EQ(value, 1);
  EXPECT_TRUE(device->done(event.view()));
  EXPECT_NO_THROW(device->synchronize(event.view()));
  EXPECT_THROW(device->seconds_at(event.view()), UsageError);
}

TEST_P(DeviceContract, TimesRise) {
  const auto device = open();
  const Stream stream = stream_of(*device);
  const Event before = device->create_event(), after = device->create_event();
  const Buffer buffer = device->allocate(MemorySpace::kDevice, 1 << 20, "test");
  std::vector<std::byte> host(1 << 20);
  device->record(before.view(), stream.view());
  device->copy(buffer.data(), host.data(), host.size(), CopyKind::kHostToDevice, stream.view());
  device->record(after.view(), stream.view());
  device->synchronize(after.view());
  EXPECT_GT(device->seconds_at(after.view()), device->seconds_at(before.view()));
}

// The cpu device throws from the call itself, others from the wait for it.
TEST_P(DeviceContract, FailuresNameTheFirstOperation) {
  const auto device = open();
  const Stream stream = stream_of(*device);
  const auto fail_and_wait = [&] {
    launch(*device, stream.view(), "broken kernel",
           []() -> KernelWork { throw std::runtime_error("no such row"); });
    launch(*device, stream.view(), "second kernel",
           []() -> KernelWork { throw std::runtime_error("not reached"); });
    device->synchronize(stream.view());
  };
  try {
    fail_and_wait();
    FAIL() << "the failure went unnoticed";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("broken kernel"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("no such row"));
  }
}

TEST_P(DeviceContract, OtherStreamsGoOnAfterAFailure) {
  const auto device = open();
  const Stream broken = stream_of(*device), healthy = stream_of(*device);
  try {
    launch(*device, broken.view(), "broken kernel", []() -> KernelWork { throw 1; });
  } catch (const DeviceError&) {
  }
  int value = 0;
  run(*device, healthy.view(), [&value] { value = 1; });
  EXPECT_NO_THROW(device->synchronize(healthy.view()));
  EXPECT_EQ(value, 1);
}

TEST_P(DeviceContract, DestroyedStreamsFinishTheirWork) {
  const auto device = open();
  std::atomic<int> count = 0;
  {
    Stream stream = stream_of(*device);
    for (int i = 0; i < 100; ++i) run(*device, stream.view(), [&count] { ++count; });
    const Stream moved = std::move(stream);
    for (int i = 0; i < 100; ++i) run(*device, moved.view(), [&count] { ++count; });
  }
  EXPECT_EQ(count, 200);
}

TEST_P(DeviceContract, EventsOutliveTheirStream) {
  const auto device = open();
  const Event before = device->create_event(), event = device->create_event();
  int value = 0;
  {
    const Stream gone = stream_of(*device);
    device->record(before.view(), gone.view());
    run(*device, gone.view(), [&value] { value = 5; });
    device->record(event.view(), gone.view());
  }
  const Stream stream = stream_of(*device);
  int seen = 0;
  device->wait(stream.view(), event.view());
  run(*device, stream.view(), [&] { seen = value; });
  device->synchronize(stream.view());
  EXPECT_EQ(seen, 5);
  EXPECT_TRUE(device->done(event.view()));
  EXPECT_GE(device->seconds_at(event.view()), device->seconds_at(before.view()));
}

TEST_P(DeviceContract, EventsMayGoWhileOthersWait) {
  const auto device = open();
  const Stream a = stream_of(*device), b = stream_of(*device);
  std::vector<int> seen;
  for (int i = 0; i < 100; ++i) {
    const Event event = device->create_event();
    run(*device, a.view(), [&seen, i] { seen.push_back(i); });
    device->record(event.view(), a.view());
    device->wait(b.view(), event.view());
  }
  device->synchronize(b.view());
  EXPECT_EQ(seen.size(), 100u);
}

TEST_P(DeviceContract, ManyStreamsInARing) {
  constexpr int kStreams = 32;
  const auto device = open();
  std::vector<Stream> streams;
  for (int i = 0; i < kStreams; ++i) {
    streams.push_back(
        stream_of(*device, i % 2 == 0 ? StreamPriority::kNormal : StreamPriority::kHigh));
  }
  const Event event = device->create_event();
  std::vector<int> seen;
  for (int i = 0; i < 5 * kStreams; ++i) {
    const StreamView stream = streams[static_cast<size_t>(i * 7 % kStreams)].view();
    device->wait(stream, event.view());
    run(*device, stream, [&seen, i] { seen.push_back(i); });
    device->record(event.view(), stream);
  }
  device->synchronize(event.view());
  std::vector<int> expected(5 * kStreams);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(seen, expected);
}

TEST_P(DeviceContract, HostThreadsShareADevice) {
  const auto device = open();
  std::array<bool, 4> right{};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < right.size(); ++t) {
    threads.emplace_back([&, t] {
      const Stream stream = stream_of(*device);
      const Event event = device->create_event();
      bool all = true;
      for (unsigned round = 0; round < 50; ++round) {
        const auto source = random_bytes(999 + round, round);
        std::vector<std::byte> result(source.size());
        const Buffer buffer = device->allocate(MemorySpace::kDevice, source.size(), "test");
        device->copy(buffer.data(), source.data(), source.size(), CopyKind::kHostToDevice,
                     stream.view());
        device->copy(result.data(), buffer.data(), source.size(), CopyKind::kDeviceToHost,
                     stream.view());
        device->record(event.view(), stream.view());
        device->synchronize(event.view());
        all = all && result == source;
      }
      right[t] = all;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(right, ::testing::Each(true));
  EXPECT_EQ(device->memory(MemorySpace::kDevice).used_bytes, 0u);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceContract, ::testing::ValuesIn(kDevices),
                         [](const auto& tested) { return std::string(tested.param); });
INSTANTIATE_TEST_SUITE_P(Gpu, DeviceContract, ::testing::Values("cuda"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace fasa
