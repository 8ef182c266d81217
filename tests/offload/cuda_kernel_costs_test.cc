// What kernels cost, as a CUDA device measures it when it is opened, on the fake runtime.
#include "offload/cuda/cuda_kernel_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/cuda/launch_error.h"
#include "offload/cuda/kernel_probe.h"
#include "offload/open_device.h"
#include "runtime/base/error.h"
#include "tests/support/fake_cuda.h"

namespace fasa {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Device> open(CudaPlatform platform, const char* name = "cuda:0",
                             bool kernel_times = true) {
  platform.times_kernels = true;
  DeviceOptions options;
  options.name = name;
  options.threads = 1;
  options.kernel_times = kernel_times;
  return open_device(options, platform);
}

KernelCosts measured(const CudaPlatform& platform) {
  return open(platform)->traits().rates.kernels;
}

constexpr double kTick = 1.125e-6;  // of the fake clock: each kernel, and an event in eight

void gpu_kernel(FakeCuda& fake, const KernelCosts& costs, const KernelCall& call) {
  double seconds = costs.launch;
  if (const auto* select = std::get_if<SelectParams>(&call)) {
    seconds = costs.select_seconds(select->selected_capacity, 0, 0);
  } else if (const auto* resolve = std::get_if<ResolveParams>(&call)) {
    const SequenceDesc& sequence = *resolve->step.sequences;
    if (sequence.access == RowAccess::kOverLink) {
      seconds = costs.resolve_seconds(sequence.hot_rows);
    }
  }
  fake.pass_time(seconds - kTick);
}

// A GPU whose kernels take what `costs` says.
CudaPlatform gpu_with(FakeCuda& fake, const KernelCosts& costs) {
  return fake.platform([&fake, costs](const KernelCall& call) { gpu_kernel(fake, costs, call); });
}

KernelCosts unusual_costs() {
  KernelCosts costs = KernelCosts::with_launch(3e-6);
  costs.select = 33e-6;
  costs.ranked_token = 9e-9;
  costs.resolve = 4e-6;
  costs.hot_slot = 1e-9;
  return costs;
}

void expect_near(const KernelCosts& found, const KernelCosts& costs) {
  constexpr double kShare = 0.02;
  EXPECT_NEAR(found.launch, costs.launch, kShare * costs.launch);
  EXPECT_NEAR(found.select, costs.select, kShare * costs.select);
  EXPECT_NEAR(found.ranked_token, costs.ranked_token, kShare * costs.ranked_token);
  EXPECT_NEAR(found.resolve, costs.resolve, kShare * costs.resolve);
  EXPECT_NEAR(found.hot_slot, costs.hot_slot, kShare * costs.hot_slot);
  EXPECT_NEAR(found.attend, costs.attend, kShare * costs.attend);
  // The low-bit list is ranked in the same kernel.
  EXPECT_NEAR(found.low_bit_token, KernelCosts().low_bit_token * 9 / 3.8, 1e-9);
}

TEST(CudaKernelCosts, AreThoseOfTheGpu) {
  FakeCuda fake;
  expect_near(measured(gpu_with(fake, unusual_costs())), unusual_costs());
}

// A virtual machine's host may take longer to launch a kernel than the GPU to run it.
TEST(CudaKernelCosts, AreNotThoseOfTheHost) {
  FakeCuda fake;
  fake.eager = true;
  CudaPlatform platform = gpu_with(fake, unusual_costs());
  platform.launch = [&fake, launch = platform.launch](const KernelCall& call, void* stream) {
    fake.pass_time(10e-6);
    launch(call, stream);
  };
  expect_near(measured(platform), unusual_costs());
}

TEST(CudaKernelCosts, AreNotThoseOfAnIdleClock) {
  FakeCuda fake;
  int kernels = 0;
  const CudaPlatform platform = fake.platform([&](const KernelCall& call) {
    if (++kernels < 400) fake.pass_time(100e-6);
    gpu_kernel(fake, unusual_costs(), call);
  });
  expect_near(measured(platform), unusual_costs());
}

TEST(CudaKernelCosts, AreMeasuredOnlyIfTheOptionsSaySo) {
  FakeCuda fake;
  CudaPlatform platform = fake.platform();
  platform.launch = [](const KernelCall&, void*) { FAIL(); };
  EXPECT_EQ(open(platform, "cuda:0", false)->traits().rates.kernels, KernelCosts());
  EXPECT_EQ(open(platform, "auto", false)->name(), "cuda:0");
}

TEST(CudaKernelCosts, ThatCannotBeRightAreTheDefaults) {
  FakeCuda fake;
  KernelCosts slow = KernelCosts::with_launch(1e-3);
  slow.ranked_token = 0;
  slow.hot_slot = 0;
  EXPECT_EQ(measured(gpu_with(fake, slow)), KernelCosts());
}

TEST(CudaKernelCosts, AreTheDefaultsIfKernelsCannotBeLaunched) {
  FakeCuda fake;
  CudaPlatform platform = fake.platform();
  platform.launch = [](const KernelCall&, void*) { throw DeviceError("no kernel image"); };
  EXPECT_EQ(measured(platform), KernelCosts());
  EXPECT_EQ(fake.device_bytes, 0u);
}

std::string error_of(const CudaPlatform& platform) {
  try {
    open(platform);
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

// The launcher takes the last error, so that only its exception tells of a lost context.
TEST(CudaKernelCosts, AKernelThatFailsLosesTheDevice) {
  FakeCuda fake;
  CudaPlatform platform = fake.platform();
  int launches = 0;
  platform.launch = [&](const KernelCall&, void*) {
    if (++launches == 3) throw cuda::LaunchError("illegal", cuda_status::kIllegalAddress);
  };
  EXPECT_THAT(error_of(platform), AllOf(HasSubstr("first kernels failed"), HasSubstr("resolve"),
                                        HasSubstr("kernel_times = off")));
  FakeCuda later;  // found by a wait
  later.fail_operation(5);
  EXPECT_THAT(error_of(later.platform()), HasSubstr("first kernels failed"));
  EXPECT_EQ(later.live_graphs + later.live_events + later.live_streams, 0);
}

TEST(CudaKernelCosts, AutoTakesNoGpuWhoseKernelsFail) {
  for (const CudaStatus status : {cuda_status::kIllegalAddress, cuda_status::kInvalidValue}) {
    FakeCuda fake;
    CudaPlatform platform = fake.platform();
    platform.launch = [&](const KernelCall&, void*) {
      throw cuda::LaunchError("select: wrong", status);
    };
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(open(platform, "auto")->name(), "cpu") << status;
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("first kernels failed"));
    EXPECT_EQ(fake.live_graphs + fake.live_events + fake.live_streams, 0) << status;
    EXPECT_EQ(fake.device_bytes, 0u) << status;
  }
}

// Each call of the measurement fails in turn: it opens with defaults or, if the call was needed for
// more, not; nothing is left.
TEST(CudaKernelCosts, CanFailAnywhereWithoutATrace) {
  const auto nothing = [](const KernelCall&) {};
  FakeCuda before, with;
  open(before.platform(nothing), "cuda:0", false);
  open(with.platform(nothing));
  for (const auto& [name, count] : with.calls) {
    const int64_t own = before.calls[name];
    for (int64_t nth = own + 1; nth <= std::min(count, own + 6); ++nth) {
      SCOPED_TRACE(name + " " + std::to_string(nth));
      FakeCuda fake;
      fake.fail_call(name, nth, cuda_status::kUnknown);
      ::testing::internal::CaptureStderr();
      try {
        open(fake.platform(nothing));
      } catch (const DeviceError& error) {
        EXPECT_THAT(error.what(), HasSubstr("999"));
      }
      const std::string said = ::testing::internal::GetCapturedStderr();
      EXPECT_TRUE(said.empty() || said.find("kernels could not be timed") != std::string::npos)
          << said;
      EXPECT_EQ(fake.live_graphs + fake.live_events + fake.live_streams, 0);
      EXPECT_EQ(fake.device_bytes, 0u);
    }
  }
}

TEST(CudaKernelCosts, LeaveNothingBehindOnceKernelsRan) {
  FakeCuda fake;
  measured(fake.platform());
  EXPECT_EQ(fake.live_streams, 0);
  EXPECT_EQ(fake.live_events, 0);
  EXPECT_EQ(fake.live_graphs, 0);
  EXPECT_EQ(fake.device_bytes, 0u);
}

// The probe's memory is what the kernels suppose it to be.
TEST(CudaKernelCosts, ProbesSelectAndResolve) {
  const KernelProbe probe;
  std::vector<std::byte> memory(probe.bytes() + 64);
  std::byte* base = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  const std::vector<std::byte> image = probe.image(base);
  std::memcpy(base, image.data(), image.size());
  for (const int size : {KernelProbe::kFewTokens, KernelProbe::kManyTokens}) {
    const SelectParams select = probe.select(base, size);
    cpu::run(select);
    EXPECT_EQ(*select.selected_sizes, size);
    EXPECT_EQ(std::set<int32_t>(select.sets, select.sets + size).size(), static_cast<size_t>(size));
    EXPECT_EQ(select.counters->nan_scores, 0u);
  }
  for (const int slots : {KernelProbe::kFewSlots, KernelProbe::kManySlots}) {
    for (int step = 0; step < 10; ++step) {
      const ResolveParams resolve = probe.resolve(base, slots, step);
      cpu::run(resolve);
      EXPECT_EQ(*resolve.fetch_counts, KernelProbe::kFewTokens) << slots << " " << step;
    }
  }
}

}  // namespace
}  // namespace fasa
