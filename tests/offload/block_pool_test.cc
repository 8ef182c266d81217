#include "offload/pages/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "offload/open_device.h"
#include "runtime/base/error.h"
#include "tests/support/faulty_device.h"

namespace fasa {
namespace {

std::unique_ptr<Device> device_with(std::optional<uint64_t> device_memory = {}) {
  DeviceOptions options;
  options.name = "cpu";
  options.threads = 1;
  options.device_memory = device_memory;
  return open_device(options);
}

TEST(BlockPool, BlocksAreDistinctAndStay) {
  const auto device = device_with();
  BlockPool pool(*device, MemorySpace::kDevice, 100, "test pages");
  EXPECT_EQ(pool.block_bytes(), 128u);
  std::vector<PageId> pages;
  std::vector<std::byte*> places;
  for (int i = 0; i < 100; ++i) {
    pages.push_back(pool.allocate());
    places.push_back(pool.data(pages.back()));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(places.back()) % 64, 0u);
    std::memset(places.back(), i, pool.block_bytes());
  }
  for (size_t i = 0; i < pages.size(); ++i) {
    EXPECT_EQ(pool.data(pages[i]), places[i]);
    EXPECT_EQ(static_cast<size_t>(places[i][0]), i);
    EXPECT_EQ(static_cast<size_t>(places[i][127]), i);
  }
  EXPECT_EQ(pool.used_blocks(), 100);
  // Growth leaves at most an eighth of the blocks, plus one, unused.
  EXPECT_LE(pool.held_bytes(), uint64_t{128} * (100 + 100 / 8 + 1));
  EXPECT_EQ(device->memory(MemorySpace::kDevice).used_bytes, pool.held_bytes());
}

TEST(BlockPool, ReferencesCount) {
  const auto device = device_with();
  BlockPool pool(*device, MemorySpace::kHost, 64, "test pages");
  const PageId page = pool.allocate();
  pool.retain(page);
  EXPECT_EQ(pool.references(page), 2);
  pool.release(page);
  EXPECT_EQ(pool.used_blocks(), 1);
  pool.release(page);
  EXPECT_EQ(pool.used_blocks(), 0);
  EXPECT_EQ(pool.held_bytes(), 0u);  // nothing is in use: all is given back
  EXPECT_EQ(device->memory(MemorySpace::kHost).used_bytes, 0u);
}

TEST(BlockPool, FreedBlocksAreTakenAgain) {
  const auto device = device_with();
  BlockPool pool(*device, MemorySpace::kDevice, 64, "test pages");
  const PageId kept = pool.allocate();
  const PageId freed = pool.allocate();
  const uint64_t held = pool.held_bytes();
  pool.release(freed);
  const PageId again = pool.allocate();
  EXPECT_NE(again, kept);
  EXPECT_EQ(pool.held_bytes(), held);
}

TEST(BlockPool, ReserveIsExactAndAPromise) {
  const auto device = device_with(uint64_t{64 * 10});
  BlockPool pool(*device, MemorySpace::kDevice, 64, "test pages");
  BlockReservation seven = pool.reserve(7);
  EXPECT_EQ(pool.held_bytes(), 64u * 7);
  // Other allocations get free blocks, but no reserved ones.
  std::vector<PageId> others;
  for (int i = 0; i < 3; ++i) others.push_back(pool.allocate());
  EXPECT_THROW(pool.allocate(), BudgetError);
  EXPECT_THROW((void)pool.reserve(1), BudgetError);
  for (int i = 0; i < 7; ++i) others.push_back(pool.allocate(seven));
  EXPECT_EQ(seven.blocks(), 0);
  EXPECT_EQ(std::set<PageId>(others.begin(), others.end()).size(), 10u);
  EXPECT_EQ(pool.reserved_blocks(), 0);
}

TEST(BlockPool, CancelledPromisesGoBack) {
  const auto device = device_with(uint64_t{64 * 10});
  BlockPool pool(*device, MemorySpace::kDevice, 64, "test pages");
  {
    BlockReservation ten = pool.reserve(10);
    const BlockReservation moved = std::move(ten);
    EXPECT_EQ(moved.blocks(), 10);
    EXPECT_EQ(ten.blocks(), 0);
    EXPECT_THROW(pool.allocate(), BudgetError);
  }
  EXPECT_EQ(pool.held_bytes(), 0u);
  EXPECT_NO_THROW((void)pool.reserve(10));
  EXPECT_EQ(pool.reserve(0).blocks(), 0);
}

TEST(BlockPool, AnUnaffordableReserveChangesNothing) {
  const auto device = device_with(uint64_t{64 * 10});
  BlockPool pool(*device, MemorySpace::kDevice, 64, "slice pages");
  const PageId page = pool.allocate();
  try {
    (void)pool.reserve(10);
    FAIL() << "passed the limit";
  } catch (const BudgetError& error) {
    EXPECT_EQ(error.limit(), "device_memory");
    EXPECT_EQ(error.asked_bytes(), 640u);
    EXPECT_NE(std::string(error.what()).find("slice pages"), std::string::npos);
  }
  EXPECT_EQ(pool.held_bytes(), 64u);
  EXPECT_EQ(pool.reserved_blocks(), 0);
  EXPECT_THROW((void)pool.reserve(std::numeric_limits<int64_t>::max()), BudgetError);
  EXPECT_EQ(pool.reserve(9).blocks(), 9);
  pool.release(page);
}

TEST(BlockPool, GrowthFallsBackToSingleBlocks) {
  const auto device = device_with(uint64_t{64 * 19});
  BlockPool pool(*device, MemorySpace::kDevice, 64, "test pages");
  std::vector<PageId> pages;
  for (int i = 0; i < 19; ++i) pages.push_back(pool.allocate());  // an eighth of 16 is two
  EXPECT_EQ(pool.held_bytes(), 64u * 19);
  EXPECT_THROW(pool.allocate(), BudgetError);
}

TEST(BlockPool, TrimGivesBackWhatIsWhollyFree) {
  const auto device = device_with();
  BlockPool pool(*device, MemorySpace::kDevice, 64, "test pages");
  BlockReservation first = pool.reserve(5), second = pool.reserve(6);
  std::vector<PageId> pages;
  while (first.blocks() > 0) pages.push_back(pool.allocate(first));
  while (second.blocks() > 0) pages.push_back(pool.allocate(second));
  std::sort(pages.begin(), pages.end(),
            [&](PageId a, PageId b) { return index_of(a) < index_of(b); });
  std::byte* const kept = pool.data(pages.back());
  for (size_t i = 0; i + 1 < pages.size(); ++i) pool.release(pages[i]);
  pool.trim();
  EXPECT_EQ(pool.held_bytes(), 64u * 6);  // the slab of the block that is in use
  EXPECT_EQ(pool.free_blocks(), 5);
  EXPECT_EQ(pool.data(pages.back()), kept);
  // Block ids of freed slabs are reused.
  for (int i = 0; i < 20; ++i) EXPECT_LT(index_of(pool.allocate()), 64u);
}

TEST(BlockPool, TrimKeepsPromises) {
  const auto device = device_with();
  BlockPool pool(*device, MemorySpace::kDevice, 64, "test pages");
  BlockReservation a = pool.reserve(4), b = pool.reserve(4);
  b.cancel();
  pool.trim();
  EXPECT_EQ(pool.held_bytes(), 64u * 4);
  for (int i = 0; i < 4; ++i) pool.allocate(a);
  EXPECT_EQ(pool.held_bytes(), 64u * 4);
}

// The newest slabs go first: what a reservation allocated is gone after it, though an older slab is
// free as well.
TEST(BlockPool, TrimAfterACancelledReserveRestoresTheSize) {
  const auto device = device_with();
  BlockPool pool(*device, MemorySpace::kDevice, 64, "test pages");
  const BlockReservation first = pool.reserve(2);
  BlockReservation rest = pool.reserve(7);
  const PageId page = pool.allocate(rest);
  const uint64_t held = pool.held_bytes();
  pool.reserve(4).cancel();
  pool.trim();
  EXPECT_EQ(pool.held_bytes(), held);
  pool.release(page);
}

// Random operations against a plain model; every `fault`-th device allocation fails once.
void random_use(unsigned seed, int64_t fault) {
  const auto inner = device_with();
  FaultyDevice device(*inner);
  BlockPool pool(device, MemorySpace::kDevice, 64, "test pages");
  device.fail_allocation(fault);
  std::mt19937 random(seed);
  std::vector<PageId> references;  // one entry per reference
  std::vector<BlockReservation> promises;
  const auto check = [&] {
    std::set<PageId> distinct(references.begin(), references.end());
    std::set<std::byte*> places;
    for (const PageId page : distinct) {
      places.insert(pool.data(page));
      ASSERT_EQ(pool.references(page), std::count(references.begin(), references.end(), page));
    }
    int64_t promised = 0;
    for (const BlockReservation& promise : promises) promised += promise.blocks();
    ASSERT_EQ(places.size(), distinct.size());
    ASSERT_EQ(pool.used_blocks(), static_cast<int64_t>(distinct.size()));
    ASSERT_EQ(pool.reserved_blocks(), promised);
    ASSERT_GE(pool.free_blocks(), promised);
    ASSERT_EQ(pool.held_bytes(),
              64u * static_cast<uint64_t>(pool.used_blocks() + pool.free_blocks()));
    ASSERT_EQ(pool.held_bytes(), inner->memory(MemorySpace::kDevice).used_bytes);
  };
  for (int step = 0; step < 300; ++step) {
    try {
      switch (random() % 7) {
        case 0:
          references.push_back(pool.allocate());
          break;
        case 1:
          if (!promises.empty() && promises.back().blocks() > 0) {
            references.push_back(pool.allocate(promises.back()));
          }
          break;
        case 2:
          promises.push_back(pool.reserve(random() % 9));
          break;
        case 3:
          if (!promises.empty()) promises.pop_back();
          break;
        case 4:
          if (!references.empty()) {
            references.push_back(references[random() % references.size()]);
            pool.retain(references.back());
          }
          break;
        case 5:
          for (size_t n = random() % 4; n > 0 && !references.empty(); --n) {
            std::swap(references[random() % references.size()], references.back());
            pool.release(references.back());
            references.pop_back();
          }
          break;
        default:
          pool.trim();
      }
    } catch (const BudgetError&) {
      ASSERT_TRUE(device.fired());
    }
    ASSERT_NO_FATAL_FAILURE(check()) << "step " << step;
  }
  for (const PageId page : references) pool.release(page);
  promises.clear();
  EXPECT_EQ(pool.held_bytes(), 0u);
}

TEST(BlockPool, RandomUseMatchesTheModel) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    ASSERT_NO_FATAL_FAILURE(random_use(seed, 0)) << "seed " << seed;
  }
}

TEST(BlockPool, SurvivesEveryFailedAllocation) {
  for (int64_t fault = 1; fault <= 60; ++fault) {
    ASSERT_NO_FATAL_FAILURE(random_use(3, fault)) << "allocation " << fault;
  }
}

}  // namespace
}  // namespace fasa
