// The CUDA device against a fake runtime on the host: failures of each call in turn, failures of
// running work, memory used by other processes, times, timelines.
#include "offload/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "offload/memory_location.h"
#include "offload/open_device.h"
#include "runtime/base/error.h"
#include "tests/support/fake_cuda.h"

namespace fasa {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::unique_ptr<Device> open(FakeCuda& fake, std::optional<uint64_t> device_memory = {}) {
  DeviceOptions options;
  options.name = "cuda:0";
  options.threads = 1;
  options.device_memory = device_memory;
  return open_device(options, fake.platform());
}

template <typename Work>
std::string device_error_of(const Work& work) {
  try {
    work();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

// Uses every operation of a device once.
void use(Device& device) {
  const Stream a = device.create_stream(StreamPriority::kNormal, "a");
  const Stream b = device.create_stream(StreamPriority::kHigh, "b");
  const Event event = device.create_event();
  const Buffer on_device = device.allocate(MemorySpace::kDevice, 1000, "test");
  const Buffer on_host = device.allocate(MemorySpace::kHost, 1000, "test");
  device.fill(on_device.data(), 1, 1000, a.view());
  device.record(event.view(), a.view());
  device.wait(b.view(), event.view());
  device.copy(on_host.data(), on_device.data(), 1000, CopyKind::kDeviceToHost, b.view());
  device.copy(on_host.data() + 500, on_host.data(), 500, CopyKind::kHostToHost, b.view());
  device.enqueue(GatherParams{}, b.view());
  device.record(event.view(), b.view());
  while (!device.done(event.view())) {
  }
  device.synchronize(event.view());
  device.synchronize(b.view());
  EXPECT_GT(device.seconds_at(event.view()), 0);
}

void expect_nothing_left(const FakeCuda& fake) {
  EXPECT_EQ(fake.live_streams, 0);
  EXPECT_EQ(fake.live_events, 0);
  EXPECT_EQ(fake.live_pools, 0);
  EXPECT_EQ(fake.device_bytes, 0u);
  EXPECT_TRUE(fake.registered.empty());
}

TEST(CudaDevice, LeavesNothingBehind) {
  FakeCuda fake;
  use(*open(fake));
  expect_nothing_left(fake);
}

// Each runtime call fails once, while the device is opened and while it is used: every failure
// throws a fasa error, nothing leaks, and the device stays usable.
TEST(CudaDevice, EveryCallMayFail) {
  FakeCuda counted;
  use(*open(counted));
  int failures = 0;
  for (const auto& [name, times] : counted.calls) {
    // Calls that free resources fail silently, and a failure to get an error's text is not an
    // error.
    if (name == "take_last_error" || name == "free" || name == "unregister_host" ||
        name.starts_with("destroy") || name == "trim_pool") {
      continue;
    }
    for (int64_t nth = 1; nth <= times; ++nth) {
      SCOPED_TRACE(name + " " + std::to_string(nth));
      FakeCuda fake;
      fake.fail_call(name, nth, cuda_status::kNotSupported);
      std::string said;
      try {
        const auto device = open(fake);
        try {
          use(*device);
        } catch (const Error& error) {
          said = error.what();
          EXPECT_NO_THROW(use(*device));
        }
      } catch (const Error& error) {
        said = error.what();
      }
      // Some waits belong to freeing.
      if (name == "synchronize_stream" && said.empty()) said = "cudaError801";
      failures += said.empty() ? 0 : 1;
      EXPECT_THAT(said, HasSubstr("cudaError801"));
      expect_nothing_left(fake);
      EXPECT_EQ(fake.take_last_error(), cuda_status::kSuccess);
    }
  }
  EXPECT_GT(failures, 50);
}

TEST(CudaDevice, GivingBackMayFailToo) {
  for (const char* name :
       {"free", "unregister_host", "destroy_stream", "destroy_event", "destroy_pool"}) {
    FakeCuda fake;
    fake.fail_call(name, 1, cuda_status::kUnknown);
    EXPECT_NO_THROW(use(*open(fake))) << name;
    EXPECT_EQ(fake.take_last_error(), cuda_status::kSuccess) << name;
  }
}

TEST(CudaDevice, AFailedCallNamesItselfItsPlaceAndItsBytes) {
  FakeCuda fake;
  const auto device = open(fake);
  const Stream stream = device->create_stream(StreamPriority::kNormal, "test");
  const Buffer buffer = device->allocate(MemorySpace::kDevice, 1000, "test");
  std::vector<std::byte> host(777);
  fake.fail_call("copy", 1, cuda_status::kInvalidValue);
  EXPECT_THAT(device_error_of([&] {
                device->copy(buffer.data(), host.data(), 777, CopyKind::kHostToDevice,
                             stream.view());
              }),
              AllOf(HasSubstr("copy host to device of 777 bytes"),
                    HasSubstr("offload/cuda/cuda_device.cc:"), HasSubstr("cudaError1")));
  // Other operations still work.
  device->fill(buffer.data(), 0, 1000, stream.view());
  EXPECT_NO_THROW(device->synchronize(stream.view()));
}

TEST(CudaDevice, AKernelThatCannotBeLaunchedIsNamed) {
  FakeCuda fake;
  // The launcher leaves a last error, as a launch with too large a block does.
  CudaPlatform platform = fake.platform();
  platform.launch = [&fake](const KernelCall&, void* stream) {
    fake.fail_call("fill", 1, cuda_status::kNoKernelImage);
    fake.fill(nullptr, 0, 0, stream);
  };
  DeviceOptions options;
  options.name = "cuda:0";
  const auto other = open_device(options, platform);
  const Stream compute = other->create_stream(StreamPriority::kNormal, "compute");
  EXPECT_THAT(device_error_of([&] { other->enqueue(AttendParams{}, compute.view()); }),
              AllOf(HasSubstr("attend failed"), HasSubstr("cudaError209")));
}

TEST(CudaDevice, AFailureWhileWorkRunsNamesWhatWasUnderWay) {
  FakeCuda fake;
  const auto device = open(fake);
  const Stream compute = device->create_stream(StreamPriority::kNormal, "compute");
  const Stream copy = device->create_stream(StreamPriority::kHigh, "copy 0");
  const Event event = device->create_event();
  const Buffer buffer = device->allocate(MemorySpace::kDevice, 64, "test");
  device->fill(buffer.data(), 0, 64, copy.view());
  device->record(event.view(), copy.view());
  device->wait(compute.view(), event.view());
  device->enqueue(SelectParams{}, compute.view(), tag_of(2, Cause::kCompute));
  device->synchronize(compute.view());  // the fill has passed too

  device->enqueue(ResolveParams{}, compute.view(), tag_of(3, Cause::kCompute));
  device->enqueue(AttendParams{}, compute.view(), tag_of(4, Cause::kCompute));
  device->record(event.view(), compute.view());
  fake.fail_operation(1);
  const std::string first = device_error_of([&] { device->synchronize(event.view()); });
  EXPECT_THAT(first, AllOf(HasSubstr("'resolve' of layer 3 to 'attend' of layer 4 (2 operations)"),
                           HasSubstr("on compute"), HasSubstr("cudaErrorIllegalAddress"),
                           HasSubstr("CUDA_LAUNCH_BLOCKING=1"), HasSubstr("cuda_device.cc:")));
  EXPECT_THAT(first,
              AllOf(Not(HasSubstr("select")), Not(HasSubstr("fill")), Not(HasSubstr("copy 0"))));
  // Every later call gives the same error, and everything can be destroyed.
  EXPECT_EQ(device_error_of([&] { device->synchronize(copy.view()); }), first);
  EXPECT_EQ(device_error_of([&] { device->done(event.view()); }), first);
  EXPECT_EQ(device_error_of([&] { device->fill(buffer.data(), 0, 1, copy.view()); }), first);
  EXPECT_EQ(device_error_of([&] { device->allocate(MemorySpace::kDevice, 1, "test"); }), first);
  EXPECT_EQ(device_error_of([&] { device->create_event(); }), first);
}

// The launcher takes the last error, and the runtime need not report a lost context twice.
TEST(CudaDevice, AFailureThatALaunchReportsNamesWhatWasUnderWay) {
  FakeCuda fake;
  const auto device = open(fake);
  const Stream compute = device->create_stream(StreamPriority::kNormal, "compute");
  const Stream copy = device->create_stream(StreamPriority::kHigh, "copy 0");
  device->enqueue(ResolveParams{}, compute.view(), tag_of(3, Cause::kCompute));
  fake.fail_operation(1);
  fake.synchronize_all();  // fails behind the device's back
  const std::string first = device_error_of(
      [&] { device->enqueue(AttendParams{}, copy.view(), tag_of(4, Cause::kCompute)); });
  EXPECT_THAT(first, AllOf(HasSubstr("candidates: 'resolve' of layer 3"), HasSubstr("on compute"),
                           HasSubstr("attend failed"), HasSubstr("cudaErrorIllegalAddress"),
                           HasSubstr("restart it")));
  EXPECT_EQ(device_error_of([&] { device->synchronize(compute.view()); }), first);
}

TEST(CudaDevice, TheOnlyOperationUnderWayIsTheOneThatFailed) {
  FakeCuda fake;
  const auto device = open(fake);
  const Stream stream = device->create_stream(StreamPriority::kNormal, "compute");
  device->enqueue(AppendParams{}, stream.view(), tag_of(7, Cause::kCompute));
  device->synchronize(stream.view());
  device->enqueue(SelectParams{}, stream.view(), tag_of(7, Cause::kCompute));
  fake.fail_operation(1);
  EXPECT_THAT(device_error_of([&] { device->synchronize(stream.view()); }),
              HasSubstr("failed; candidates: 'select' of layer 7 on compute."));
}

TEST(CudaMemory, OthersMayTakeIt) {
  FakeCuda fake;
  fake.gpus[0].memory_bytes = uint64_t{1} << 30;
  const auto device = open(fake);
  EXPECT_EQ(device->memory(MemorySpace::kDevice).limit_bytes,
            (uint64_t{1} << 30) - CudaMemory::kReserve);
  fake.others_bytes = uint64_t{1000} << 20;
  try {
    device->allocate(MemorySpace::kDevice, 100 << 20, "slice pages");
    FAIL() << "allocated";
  } catch (const BudgetError& error) {
    EXPECT_EQ(error.limit(), "device_memory");
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("slice pages"), HasSubstr("cuda:0"), HasSubstr("nvidia-smi")));
  }
  EXPECT_EQ(device->memory(MemorySpace::kDevice).used_bytes, 0u);
  EXPECT_EQ(fake.take_last_error(), cuda_status::kSuccess);
  fake.others_bytes = 0;
  EXPECT_NO_THROW(device->allocate(MemorySpace::kDevice, 100 << 20, "slice pages"));
}

// The pool's cached memory is released before an allocation fails.
TEST(CudaMemory, ThePoolIsTrimmedFirst) {
  FakeCuda fake;
  fake.gpus[0].memory_bytes = uint64_t{300} << 20;
  const auto device = open(fake, uint64_t{1} << 40);
  { const Buffer small = device->allocate(MemorySpace::kDevice, 200 << 20, "test"); }
  EXPECT_NO_THROW(device->allocate(MemorySpace::kDevice, 290 << 20, "test"));
  EXPECT_GT(fake.calls["trim_pool"], 0);
}

TEST(CudaMemory, GpusWithoutPoolsHaveMemoryToo) {
  FakeCuda fake;
  fake.gpus[0].memory_pools = false;
  use(*open(fake));
  EXPECT_EQ(fake.calls["create_pool"], 0);
  expect_nothing_left(fake);
}

// An hour of milliseconds in a float would have a resolution of a quarter of a millisecond.
TEST(CudaClock, StaysFine) {
  FakeCuda fake;
  const auto device = open(fake);
  const Stream stream = device->create_stream(StreamPriority::kNormal, "test");
  const Event before = device->create_event(), after = device->create_event();
  double elapsed = 0;
  for (int i = 0; i < 1000; ++i) {
    fake.pass_time(3.6);
    elapsed += 3.6;
    device->record(before.view(), stream.view());
    device->synchronize(before.view());
    ASSERT_NEAR(device->seconds_at(before.view()), elapsed, 0.01);
  }
  device->record(before.view(), stream.view());
  device->synchronize(stream.view());
  fake.pass_time(10e-6);
  device->record(after.view(), stream.view());
  EXPECT_NEAR(device->seconds_at(after.view()) - device->seconds_at(before.view()), 10e-6, 2e-6);
}

TEST(CudaDevice, TimelinesHaveWorkWaitsAndTheirReasons) {
  FakeCuda fake;
  const auto device = open(fake);
  Timeline timeline;
  device->set_timeline(&timeline);
  const Stream compute = device->create_stream(StreamPriority::kNormal, "compute");
  const Stream copy = device->create_stream(StreamPriority::kHigh, "copy 0");
  const Event event = device->create_event();
  const Buffer buffer = device->allocate(MemorySpace::kDevice, 1000, "test");
  std::vector<std::byte> host(1000);
  device->copy(buffer.data(), host.data(), 1000, CopyKind::kHostToDevice, copy.view(),
               tag_of(5, Cause::kMiss));
  device->record(event.view(), copy.view());
  device->wait(compute.view(), event.view(), tag_of(5, Cause::kMiss));
  device->enqueue(AttendParams{}, compute.view(), tag_of(5, Cause::kCompute));
  device->synchronize(compute.view());
  device->synchronize(copy.view());
  device->set_timeline(nullptr);
  device->enqueue(AttendParams{}, compute.view(), tag_of(5, Cause::kCompute));
  device->synchronize(compute.view());

  bool copied = false, waited = false, attended = false;
  for (const TimelineEntry& entry : timeline.entries()) {
    EXPECT_LE(entry.span.start, entry.span.end);
    const std::string name = entry.name;
    if (entry.kind == TimelineEntry::Kind::kWait) {
      waited = true;
      EXPECT_STREQ(entry.awaited.name, "copy host to device");
      EXPECT_EQ(entry.awaited.tag, tag_of(5, Cause::kMiss));
      EXPECT_EQ(timeline.streams().at(entry.awaited.stream), "copy 0");
    } else if (name == "copy host to device") {
      copied = true;
      EXPECT_EQ(entry.work.h2d_bytes, 1000u);
      EXPECT_GT(entry.link[0].seconds(), 0);
      EXPECT_EQ(entry.link[1].seconds(), 0);
    } else if (name == "attend") {
      attended = true;
      EXPECT_EQ(entry.tag, tag_of(5, Cause::kCompute));
    }
  }
  EXPECT_TRUE(copied && waited && attended);
  EXPECT_EQ(timeline.size(), 3u);
  EXPECT_FALSE(timeline.samples().empty());
}

TEST(CudaDevice, HostCodeIsNoKernel) {
  FakeCuda fake;
  const auto device = open(fake);
  const Stream stream = device->create_stream(StreamPriority::kNormal, "test");
  EXPECT_THROW(device->launch(stream.view(), "projections", [] { return KernelWork{}; }),
               UsageError);
  EXPECT_THROW(device->fill(nullptr, 0, 1, StreamView{}), UsageError);
}

// Work runs in the order of an engine's own stream, and the device does not destroy that stream.
TEST(CudaDevice, StreamsOfOthersAreAdopted) {
  FakeCuda fake;
  const auto device = open(fake);
  void* theirs = nullptr;
  ASSERT_EQ(fake.create_stream(&theirs, StreamPriority::kNormal), cuda_status::kSuccess);
  std::vector<int> seen;
  {
    const Stream stream = static_cast<CudaDevice&>(*device).adopt_stream(theirs, "engine");
    for (int i = 0; i < 3; ++i) {
      static_cast<CudaDevice&>(*device).run_on_host(stream.view(), "note", [&seen, i] {
        seen.push_back(i);
        return KernelWork{};
      });
    }
  }
  EXPECT_THAT(seen, ::testing::ElementsAre(0, 1, 2));
  EXPECT_EQ(fake.destroy_stream(theirs), cuda_status::kSuccess);
}

// Many ranges go in one call where the runtime has it; the copied bytes are the same.
TEST(CudaCopies, OfManyRangesAreOneCallWhereThereIsOne) {
  constexpr size_t kBytes = CudaDevice::kMinBatched;
  const struct {
    int driver;
    size_t bytes;
    int64_t batches, copies;  // calls
  } cases[] = {{12080, kBytes, 1, 0}, {12080, kBytes - 1, 0, 3}, {12070, kBytes, 1, 3}};
  for (const auto& wanted : cases) {
    FakeCuda fake;
    fake.driver_version = wanted.driver;
    fake.runtime_version = 12070;
    const auto device = open(fake);
    const Stream stream = device->create_stream(StreamPriority::kNormal, "copies");
    const Buffer host = device->allocate(MemorySpace::kHost, 3 * kBytes, "test");
    const Buffer there = device->allocate(MemorySpace::kDevice, 3 * kBytes, "test");
    const Buffer back = device->allocate(MemorySpace::kHost, 3 * kBytes, "test");
    for (size_t i = 0; i < 3 * kBytes; ++i) host.data()[i] = static_cast<std::byte>(i * 7 % 251);
    const auto before = fake.calls;
    const TransferTotals totals = device->transfers();
    std::vector<CopyRange> ranges;
    for (const size_t at : {size_t{0}, kBytes, 2 * kBytes}) {
      ranges.push_back({there.data() + at, host.data() + at, wanted.bytes});
    }
    device->copy_all(ranges, CopyKind::kHostToDevice, stream.view());
    EXPECT_EQ(fake.calls["copy_all"] - (before.contains("copy_all") ? before.at("copy_all") : 0),
              wanted.batches);
    EXPECT_EQ(fake.calls["copy"] - before.at("copy"), wanted.copies);
    EXPECT_EQ(device->transfers().h2d_bytes - totals.h2d_bytes, 3 * wanted.bytes);
    EXPECT_EQ(device->transfers().h2d_operations - totals.h2d_operations, 3u);
    device->copy_all(ranges, CopyKind::kHostToDevice, stream.view());
    EXPECT_LE(fake.calls["copy_all"], 1 + (wanted.copies == 0 ? 1 : 0));  // asked once
    device->copy(back.data(), there.data(), 2 * kBytes + wanted.bytes, CopyKind::kDeviceToHost,
                 stream.view());
    device->synchronize(stream.view());
    for (const size_t at : {size_t{0}, kBytes, 2 * kBytes}) {
      EXPECT_EQ(std::memcmp(back.data() + at, host.data() + at, wanted.bytes), 0) << at;
    }
  }
}

TEST(CudaDevice, KnowsWhereACallersMemoryLies) {
  FakeCuda fake;
  const auto device = open(fake);
  const Buffer on_device = device->allocate(MemorySpace::kDevice, 1000, "test");
  const Buffer on_host = device->allocate(MemorySpace::kHost, 1000, "test");
  std::vector<std::byte> plain(100), other(100);
  fake.elsewhere[other.data()] = other.size();
  EXPECT_EQ(location_of(*device, on_device.data() + 999), MemoryLocation::kDevice);
  EXPECT_EQ(location_of(*device, on_host.data()), MemoryLocation::kShared);
  EXPECT_EQ(location_of(*device, plain.data()), MemoryLocation::kHost);
  EXPECT_EQ(location_of(*device, other.data() + 99), MemoryLocation::kElsewhere);
  DeviceOptions options;
  for (const char* name : {"cpu", "emulated"}) {
    options.name = name;
    EXPECT_EQ(location_of(*open_device(options), plain.data()), MemoryLocation::kShared) << name;
  }
  fake.fail_call("locate", 1, cuda_status::kInvalidValue);
  EXPECT_THAT(device_error_of([&] { location_of(*device, plain.data()); }),
              HasSubstr("cudaPointerGetAttributes"));
}

TEST(CudaDevice, KnowsWhoseACallersStreamIs) {
  FakeCuda fake;
  const auto device = open(fake);
  void* native = nullptr;
  ASSERT_EQ(fake.create_stream(&native, StreamPriority::kNormal), cuda_status::kSuccess);
  const Stream own = device->create_stream(StreamPriority::kNormal, "test");
  const Stream adopted = adopt_stream(*device, native, "engine");
  EXPECT_NO_THROW(require_alive(*device, adopted.view()));
  // Older CUDA versions cannot tell the GPU of a stream.
  fake.fail_call("gpu_of_stream", 1, cuda_status::kNotSupported);
  EXPECT_NO_THROW(require_alive(*device, adopted.view()));
  EXPECT_EQ(fake.take_last_error(), cuda_status::kSuccess);
  fake.foreign_streams.insert(native);
  EXPECT_THROW(adopt_stream(*device, native, "engine"), UsageError);
  EXPECT_THROW(require_alive(*device, adopted.view()), UsageError);
  fake.foreign_streams.clear();
  ASSERT_EQ(fake.destroy_stream(native), cuda_status::kSuccess);
  EXPECT_THROW(require_alive(*device, adopted.view()), UsageError);
  EXPECT_EQ(fake.take_last_error(), cuda_status::kSuccess);
  EXPECT_NO_THROW(require_alive(*device, own.view()));
  EXPECT_NO_THROW(use(*device));
}

// Memory from elsewhere may be pageable, and goes range by range.
TEST(CudaCopies, FromTheHeapAreNotBatched) {
  constexpr size_t kBytes = CudaDevice::kMinBatched;
  FakeCuda fake;
  const auto device = open(fake);
  const Stream stream = device->create_stream(StreamPriority::kNormal, "copies");
  const Buffer there = device->allocate(MemorySpace::kDevice, 2 * kBytes, "test");
  const std::vector<std::byte> heap(2 * kBytes, std::byte{7});
  const CopyRange ranges[] = {{there.data(), heap.data(), kBytes},
                              {there.data() + kBytes, heap.data() + kBytes, kBytes}};
  device->copy_all(ranges, CopyKind::kHostToDevice, stream.view());
  device->synchronize(stream.view());
  EXPECT_EQ(fake.calls["copy_all"], 0);
  EXPECT_EQ(std::memcmp(there.data(), heap.data(), 2 * kBytes), 0);
}

// The runtime refuses batches of copies on the legacy stream, which PyTorch works on by default.
TEST(CudaDevice, CopiesOnTheLegacyStreamAreNotBatched) {
  constexpr size_t kBytes = CudaDevice::kMinBatched;
  FakeCuda fake;
  const auto device = open(fake);
  const Buffer host = device->allocate(MemorySpace::kHost, 2 * kBytes, "test");
  const Buffer there = device->allocate(MemorySpace::kDevice, 2 * kBytes, "test");
  std::memset(host.data(), 7, 2 * kBytes);
  const CopyRange ranges[] = {{there.data() + kBytes, host.data(), kBytes},
                              {there.data(), host.data() + kBytes, kBytes}};
  const auto copy = [&](StreamView stream) {
    std::memset(there.data(), 0, 2 * kBytes);
    const int64_t before = fake.calls["copy_all"];
    device->copy_all(ranges, CopyKind::kHostToDevice, stream);
    device->synchronize(stream);
    EXPECT_EQ(std::memcmp(there.data(), host.data(), 2 * kBytes), 0);
    return fake.calls["copy_all"] - before;
  };
  const Stream legacy = adopt_stream(*device, FakeCuda::legacy_stream(), "caller");
  const Stream own = device->create_stream(StreamPriority::kNormal, "own");
  EXPECT_EQ(copy(own.view()), 1);
  EXPECT_EQ(copy(legacy.view()), 0);
  EXPECT_EQ(copy(own.view()), 1);  // nothing was refused
}

}  // namespace
}  // namespace fasa
