#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "offload/cuda/cuda_calls.h"
#include "offload/host/available_memory.h"
#include "offload/host/host_arena.h"
#include "offload/host/memory_limit.h"
#include "offload/host/space_allocator.h"
#include "offload/host/topology.h"
#include "offload/open_device.h"
#include "runtime/base/error.h"

namespace fasa {
namespace {

size_t resident_pages(const std::byte* data, size_t bytes) {
  std::vector<unsigned char> pages((bytes + 4095) / 4096);
  if (mincore(const_cast<std::byte*>(data), bytes, pages.data()) != 0) return 0;
  size_t count = 0;
  for (const unsigned char page : pages) count += page & 1;
  return count;
}

TEST(AvailableMemory, IsWhatTheKernelCallsAvailable) {
  EXPECT_EQ(available_in("MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable:    2048 kB\nBuffers: 3 kB"),
            uint64_t{2} << 20);
  EXPECT_EQ(available_in("MemTotal: 9 kB\n"), std::nullopt);
  EXPECT_EQ(available_in("MemAvailable: much"), std::nullopt);
  EXPECT_EQ(available_in("MemAvailable: 99999999999999999999 kB"), std::nullopt);
  EXPECT_EQ(available_in(""), std::nullopt);
}

TEST(AvailableMemory, OfThisMachineIsLessThanAllOfIt) {
  const auto bytes = available_host_bytes();
  ASSERT_TRUE(bytes.has_value());
  EXPECT_GT(*bytes, 0u);
  EXPECT_LT(*bytes, static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                        static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
}

TEST(HostArena, SmallAndLargeBlocksAreAlignedAndWritable) {
  HostArena arena({}, 0, {});
  for (const size_t bytes : {size_t{1}, size_t{4097}, HostArena::kMappedBytes - 1,
                             HostArena::kMappedBytes, size_t{5} << 20, (size_t{3} << 20) + 17}) {
    std::byte* const data = arena.allocate(bytes, 4096);
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 4096, 0u);
    if (bytes >= HostArena::kHugePageBytes) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % HostArena::kHugePageBytes, 0u);
    }
    std::memset(data, 1, bytes);
    arena.free(data);
  }
}

TEST(HostArena, ReservedMemoryCostsNothingUntilItIsTouched) {
  HostArena arena({}, 0, {});
  const size_t bytes = size_t{4} << 30;
  std::byte* const data = arena.allocate(bytes, 4096);
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(resident_pages(data, size_t{1} << 30), 0u);
  data[12345] = std::byte{1};
  EXPECT_GE(resident_pages(data, size_t{1} << 30), 1u);
  arena.free(data);
}

TEST(HostArena, ImpossibleSizesAreRefused) {
  HostArena arena({}, 0, {});
  EXPECT_EQ(arena.allocate(size_t{1} << 60, 4096), nullptr);
}

TEST(HostArena, UnknownNodesAreNamedWithTheKnownOnes) {
  const NumaPolicy policy{NumaPolicy::Kind::kNode, 1000};
  try {
    const HostArena arena(policy, 0, {});
    FAIL() << "node 1000 is there?";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("1000"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("interleave"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr(Topology::machine().node_list()));
  }
}

TEST(HostArena, EveryPolicyThatTheMachineKnowsGivesMemory) {
  std::vector<NumaPolicy> policies = {{}, {NumaPolicy::Kind::kInterleave, 0}};
  for (const NumaNode& node : Topology::machine().nodes()) {
    policies.push_back({NumaPolicy::Kind::kNode, node.index});
  }
  for (const NumaPolicy& policy : policies) {
    HostArena arena(policy, Topology::machine().node_of_process(), {});
    EXPECT_FALSE(arena.placement().empty());
    std::byte* const data = arena.allocate(size_t{3} << 20, 4096);
    ASSERT_NE(data, nullptr) << arena.placement();
    std::memset(data, 2, size_t{3} << 20);
    arena.free(data);
  }
}

TEST(HostArena, AliasedMemoryRepeatsOneStretch) {
  const size_t alias = HostArena::kHugePageBytes;
  HostArena arena({}, 0, alias);
  std::byte* const data = arena.allocate_aliased(5 * alias + 4096);
  ASSERT_NE(data, nullptr);
  data[7] = std::byte{42};
  for (size_t i = 0; i <= 5; ++i) EXPECT_EQ(data[i * alias + 7], std::byte{42}) << i;
  data[3 * alias + 99] = std::byte{43};
  EXPECT_EQ(data[99], std::byte{43});
  std::byte* const small = arena.allocate_aliased(4096);
  EXPECT_NE(small[7], std::byte{42});  // the memory before the stretch stays its owner's
  arena.free(small);
  arena.free(data);
}

TEST(MemoryLimit, CountsUsePeakAndLimit) {
  MemoryLimit limit("host_memory", uint64_t{100});
  limit.take(60, "rows");
  limit.take(40, "rows");
  EXPECT_THROW(limit.take(1, "rows"), BudgetError);
  limit.give(50);
  limit.take(0, "nothing");
  EXPECT_EQ(limit.use().used_bytes, 50u);
  EXPECT_EQ(limit.use().peak_bytes, 100u);
  EXPECT_THROW(limit.take(UINT64_MAX, "rows"), BudgetError);
  MemoryLimit none("host_memory", std::nullopt);
  none.take(UINT64_MAX - 1, "rows");
  EXPECT_THROW(none.take(2, "rows"), BudgetError);
}

TEST(SpaceAllocator, HostLimitOfOneTierBoundsBothSpaces) {
  DeviceOptions options;
  options.host_memory = 100;
  SpaceAllocator unified(options, true);
  std::byte* const rows = unified.allocate(MemorySpace::kHost, 60, "rows");
  EXPECT_THROW(unified.allocate(MemorySpace::kDevice, 41, "slices"), BudgetError);
  EXPECT_EQ(unified.use(MemorySpace::kDevice).used_bytes, 0u);
  std::byte* const slices = unified.allocate(MemorySpace::kDevice, 40, "slices");
  EXPECT_EQ(unified.use(MemorySpace::kHost).used_bytes, 60u);
  EXPECT_EQ(unified.use(MemorySpace::kDevice).used_bytes, 40u);
  unified.free(MemorySpace::kHost, rows, 60);
  unified.free(MemorySpace::kDevice, slices, 40);
  EXPECT_EQ(unified.use(MemorySpace::kHost).used_bytes, 0u);

  SpaceAllocator apart(options, false);
  std::byte* const more = apart.allocate(MemorySpace::kDevice, 1000, "slices");
  apart.free(MemorySpace::kDevice, more, 1000);
}

TEST(OpenDevice, NamesAndOptionsAreChecked) {
  const auto error_of = [](DeviceOptions options) -> std::string {
    try {
      open_device(options, CudaPlatform{});  // a build without CUDA
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  DeviceOptions options;
  EXPECT_EQ(open_device(options, CudaPlatform{})->name(), "cpu");
  options.name = "gpu";
  EXPECT_THAT(error_of(options), ::testing::AllOf(::testing::HasSubstr("'gpu'"),
                                                  ::testing::HasSubstr("auto, cpu, emulated")));
  options.name = "cuda:0";
  EXPECT_THAT(error_of(options), ::testing::AllOf(::testing::HasSubstr("no CUDA device"),
                                                  ::testing::HasSubstr("auto, cpu, emulated")));
  options.name = "emulated";
  for (double DeviceOptions::*rate :
       {&DeviceOptions::link_bandwidth, &DeviceOptions::memory_bandwidth}) {
    for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
      DeviceOptions broken = options;
      broken.*rate = bad;
      EXPECT_NE(error_of(broken), "") << bad;
    }
  }
  DeviceOptions broken = options;
  broken.link_latency = -1e-6;
  EXPECT_THAT(error_of(broken), ::testing::HasSubstr("link_latency"));
  for (const int threads : {-1, 100000}) {
    broken = options;
    broken.threads = threads;
    EXPECT_THAT(error_of(broken), ::testing::HasSubstr("threads"));
  }
  broken = options;
  broken.numa = {NumaPolicy::Kind::kNode, 1000};
  EXPECT_THAT(error_of(broken), ::testing::HasSubstr("numa"));
}

}  // namespace
}  // namespace fasa
