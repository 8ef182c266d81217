// What kernels cost, as a CUDA device measures it when it is opened, on the fake runtime.
#include "offload/cuda/cuda_kernel_costs.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "offload/cuda/kernel_probe.h"
#include "offload/open_device.h"
#include "runtime/base/error.h"
#include "tests/support/fake_cuda.h"

namespace fasa {
namespace {

KernelCosts measured(CudaPlatform platform) {
  platform.times_kernels = true;
  DeviceOptions options;
  options.name = "cuda:0";
  options.threads = 1;
  return open_device(options, platform)->traits().rates.kernels;
}

constexpr double kTick = 1.125e-6;  // of the fake clock: each kernel, and an event in eight

// A GPU whose kernels take what `costs` says.
CudaPlatform gpu_with(FakeCuda& fake, const KernelCosts& costs) {
  return fake.platform([&fake, costs](const KernelCall& call) {
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
  });
}

TEST(CudaKernelCosts, AreThoseOfTheGpu) {
  FakeCuda fake;
  KernelCosts costs = KernelCosts::with_launch(3e-6);
  costs.select = 33e-6;
  costs.ranked_token = 9e-9;
  costs.resolve = 4e-6;
  costs.hot_slot = 1e-9;
  const KernelCosts found = measured(gpu_with(fake, costs));
  constexpr double kShare = 0.02;
  EXPECT_NEAR(found.launch, costs.launch, kShare * costs.launch);
  EXPECT_NEAR(found.select, costs.select, kShare * costs.select);
  EXPECT_NEAR(found.ranked_token, costs.ranked_token, kShare * costs.ranked_token);
  EXPECT_NEAR(found.resolve, costs.resolve, kShare * costs.resolve);
  EXPECT_NEAR(found.hot_slot, costs.hot_slot, kShare * costs.hot_slot);
  EXPECT_NEAR(found.attend, costs.attend, kShare * costs.attend);
  // The low-bit list is ranked in the same kernel.
  EXPECT_NEAR(found.low_bit_token, KernelCosts().low_bit_token * 9 / 5, 1e-9);
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

TEST(CudaKernelCosts, LeaveNothingBehindOnceKernelsRan) {
  FakeCuda fake;
  measured(fake.platform());
  EXPECT_EQ(fake.live_streams, 0);
  EXPECT_EQ(fake.live_events, 0);
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
