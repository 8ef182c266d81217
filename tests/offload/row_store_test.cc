// The contract of row stores, the same for all tiers, and what each tier adds.
#include "offload/store/row_store.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "offload/open_device.h"
#include "offload/store/open_store.h"

namespace fasa {
namespace {

// All work has passed.
struct Idle final : Fences {
  void order(Fence) override {}
  void wait(Fence) override { ++waits; }
  Fence latest() const override { return {1}; }
  int waits = 0;
};

LayerGroup group_of(int64_t seen = 0) {
  CacheLayout layout;
  layout.layers = 2;
  layout.kv_heads = 1;
  layout.row = {.dtype = DType::kBF16, .key_dim = 16, .value_dim = 16};
  layout.sinks = 4;
  layout.recent = 8;
  return {layout, {.seen = seen, .first_pages = 1}};
}

std::unique_ptr<Device> open_emulated() {
  DeviceOptions options;
  options.name = "emulated";
  options.threads = 1;
  return open_device(options);
}

constexpr int kHotRows = 100;  // as much memory as two pages

struct Opened {
  explicit Opened(RowTier tier, int64_t seen = 0)
      : device(open_emulated()),
        store(open_store(tier, *device, group_of(seen), fences, kHotRows)),
        control(device->create_stream(StreamPriority::kHigh, "control")) {}

  uint64_t used() const {
    return device->memory(MemorySpace::kDevice).used_bytes +
           device->memory(MemorySpace::kHost).used_bytes;
  }

  std::unique_ptr<Device> device;
  Idle fences;
  std::unique_ptr<RowStore> store;
  Stream control;
};

class RowStores : public ::testing::TestWithParam<RowTier> {};

TEST_P(RowStores, TheWayBackReturnsAllMemory) {
  Opened opened(GetParam(), 100);
  const auto rows = opened.store->open();
  EXPECT_EQ(opened.used(), 0u);
  const SequenceRows::Mark empty = rows->mark();
  rows->grow(130);
  EXPECT_EQ(rows->pages(), 3);
  const SequenceRows::Mark mark = rows->mark();
  const uint64_t used = opened.used();
  rows->promise(2000, 9);
  rows->grow(500);
  EXPECT_GT(opened.used(), used);
  rows->back_to(mark, 130);
  opened.store->trim();
  EXPECT_EQ(rows->pages(), 3);
  EXPECT_EQ(opened.used(), used);
  rows->retake(mark);
  EXPECT_EQ(opened.used(), used);
  rows->back_to(empty, 0);
  opened.store->trim();
  EXPECT_EQ(opened.used(), 0u);
}

TEST_P(RowStores, ForksSharePagesUntilTheyWrite) {
  Opened opened(GetParam());
  auto parent = opened.store->open();
  parent->grow(250);
  const auto child = opened.store->open();
  child->share(*parent, 150);
  ASSERT_EQ(child->pages(), 3);
  EXPECT_EQ(child->blocks()[2], parent->blocks()[2]);
  EXPECT_FALSE(child->reserve_private_page(128));
  EXPECT_TRUE(child->reserve_private_page(150));
  child->make_private(150, opened.control.view());
  opened.device->synchronize(opened.control.view());
  EXPECT_NE(child->blocks()[2], parent->blocks()[2]);
  EXPECT_FALSE(child->reserve_private_page(150));
  parent.reset();
  child->truncate(64);
  EXPECT_EQ(child->pages(), 1);
  EXPECT_NE(child->blocks()[0], nullptr);
}

TEST_P(RowStores, OnlyUnseenPagesAreFreed) {
  Opened opened(GetParam(), 100);
  const auto rows = opened.store->open();
  rows->grow(640);
  EXPECT_EQ(rows->droppable(100), 0);
  const int64_t pages = rows->droppable(640);
  EXPECT_EQ(pages, (640 + 1 - 100) / kPageTokens - 1);  // the sinks' page stays
  rows->drop_until(1 + pages);
  EXPECT_EQ(rows->droppable(640), 0);
  for (int64_t page = 0; page < rows->pages(); ++page) {
    EXPECT_EQ(rows->blocks()[static_cast<size_t>(page)] == nullptr, page >= 1 && page <= pages);
  }
  EXPECT_TRUE(rows->retained().can_truncate(640));
  EXPECT_FALSE(rows->retained().can_truncate(500));
  EXPECT_TRUE(rows->retained().can_truncate(0));
}

std::string name_of(const ::testing::TestParamInfo<RowTier>& tested) {
  const char* const names[] = {"device", "disk", "host", "mirrored"};
  return names[static_cast<size_t>(tested.param)];
}

INSTANTIATE_TEST_SUITE_P(Tiers, RowStores,
                         ::testing::Values(RowTier::kDevice, RowTier::kDisk, RowTier::kHost,
                                           RowTier::kMirrored),
                         name_of);

TEST(HostStore, CopiesBecomeHotRowsOnce) {
  Opened opened(RowTier::kHost);
  const auto rows = opened.store->open();
  rows->grow(100);
  EXPECT_TRUE(rows->copied());
  EXPECT_EQ(rows->access(), RowAccess::kLocal);
  EXPECT_FALSE(rows->outgrows_copies(128));
  EXPECT_TRUE(rows->outgrows_copies(1000));
  rows->read_over_link(100);
  rows->grow(1000);
  EXPECT_EQ(rows->access(), RowAccess::kOverLink);
  EXPECT_EQ(rows->memory().copies, 0u);
  EXPECT_EQ(rows->memory().hot_rows,
            static_cast<uint64_t>(group_of().layout.hot_bytes(kHotRows) +
                                  group_of().layout.hot_table_bytes(kHotRows) +
                                  group_of().layout.protected_bytes()));
  rows->truncate(10);
  EXPECT_FALSE(rows->copied());
}

// The sequence with the most copies gives up its oldest page.
TEST(MirroredStore, CopiesAreGivenUpForOthers) {
  Opened opened(RowTier::kMirrored);
  std::vector<std::unique_ptr<SequenceRows>> all;
  for (const int64_t tokens : {320, 640}) {
    all.push_back(opened.store->open());
    all.back()->read_over_link(0);
    all.back()->grow(tokens);
    opened.store->lend_copies(*all.back(), 0, pages_of(tokens));
  }
  EXPECT_EQ(all[1]->view().copies.size(), 10u);
  const auto free = [&] {
    const MemoryUse use = opened.device->memory(MemorySpace::kDevice);
    return use.limit_bytes - use.used_bytes;
  };
  const uint64_t before = free();
  EXPECT_TRUE(opened.store->reclaim(MemorySpace::kDevice, static_cast<size_t>(before) + 1));
  EXPECT_EQ(opened.fences.waits, 1);
  EXPECT_GT(free(), before);
  EXPECT_FALSE(all[1]->view().has_copy(0));
  EXPECT_TRUE(all[1]->view().has_copy(1));
  EXPECT_TRUE(all[0]->view().has_copy(0));
  EXPECT_TRUE(all[1]->overwrites());
}

// Counts what it loads.
struct Counted final : PendingPages {
  void load(std::span<const RowBytes> wanted, std::span<std::byte* const>) override {
    parts += std::ssize(wanted);
  }
  bool load_more(int64_t pages, size_t, std::span<std::byte* const>) override {
    return ++parts >= pages;
  }
  bool lost() const override { return false; }
  int64_t parts = 0;
};

TEST(DiskStore, ContentsComeOnDemand) {
  Opened opened(RowTier::kDisk);
  EXPECT_TRUE(opened.store->loads_on_demand());
  const auto rows = opened.store->open();
  rows->grow(640);
  const auto pending = std::make_shared<Counted>();
  rows->attach(pending, 9);
  const auto fork = opened.store->open();
  fork->share(*rows, 200);
  EXPECT_EQ(fork->view().pending, pending.get());
  EXPECT_EQ(fork->view().pending_pages, 3);  // the last page has its contents
  rows->load(7, 10);
  EXPECT_EQ(pending->parts, 2);
  int calls = 1;
  while (!rows->load_more(1)) ++calls;
  EXPECT_EQ(calls, 7);
  EXPECT_EQ(rows->view().pending, nullptr);
  fork->truncate(64);
  EXPECT_EQ(fork->view().pending, nullptr);
}

}  // namespace
}  // namespace fasa
