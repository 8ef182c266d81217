#include "offload/pages/page_table.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "offload/open_device.h"
#include "runtime/base/error.h"
#include "tests/support/faulty_device.h"

namespace fasa {
namespace {

constexpr size_t kBlock = 64;

std::unique_ptr<Device> open(const char* name, std::optional<uint64_t> device_memory = {}) {
  DeviceOptions options;
  options.name = name;
  options.threads = 1;
  options.device_memory = device_memory;
  return open_device(options);
}

// The table's entries as the device sees them, copied back by way of the stream.
std::vector<std::byte*> device_view(Device& device, PageTable& table, StreamView stream) {
  table.upload(stream);
  std::vector<std::byte*> seen(static_cast<size_t>(table.pages()));
  device.copy(seen.data(), table.device_data(), seen.size() * sizeof(std::byte*),
              CopyKind::kDeviceToHost, stream);
  device.synchronize(stream);
  return seen;
}

class PageTables : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Device> device = open(GetParam());
  BlockPool pool{*device, MemorySpace::kDevice, kBlock, "test pages"};
  Stream stream = device->create_stream(StreamPriority::kNormal, "tables");

  void write(const PageTable& table, int64_t index, int value) {
    device->fill(pool.data(table.page(index)), value, kBlock, stream.view());
  }
  int read(const PageTable& table, int64_t index) {
    std::byte bytes[kBlock];
    device->copy(bytes, pool.data(table.page(index)), kBlock, CopyKind::kDeviceToHost,
                 stream.view());
    device->synchronize(stream.view());
    EXPECT_EQ(std::memcmp(bytes, bytes + 1, kBlock - 1), 0);
    return static_cast<int>(bytes[0]);
  }
  std::vector<std::byte*> blocks(const PageTable& table) {
    return {table.blocks().begin(), table.blocks().end()};
  }
};

// The way back returns all memory that growth took, and keeps later changes of entries.
TEST_P(PageTables, BackToReturnsWhatGrowthTook) {
  PageTable table(pool), other(pool);
  table.back_to(PageTable(pool).mark());
  EXPECT_EQ(table.device_bytes(), 0u);
  for (const int64_t before : {0, 3, 16, 20}) {
    table.grow(before);
    const auto view = device_view(*device, table, stream.view());
    const PageTable::Mark mark = table.mark();
    const uint64_t device_bytes = table.device_bytes(), host_bytes = table.host_bytes();
    table.grow(300);
    device_view(*device, table, stream.view());
    if (before > 0) {
      other = table.fork(1);
      table.make_writable(0, stream.view());
    }
    table.back_to(mark);
    EXPECT_EQ(table.pages(), before);
    EXPECT_EQ(table.device_bytes(), device_bytes);
    EXPECT_EQ(table.host_bytes(), host_bytes);
    const auto now = device_view(*device, table, stream.view());
    EXPECT_EQ(now, blocks(table));
    EXPECT_EQ(now.size(), view.size());
    EXPECT_EQ(now == view, before == 0);
    table.grow(before + 1);
    EXPECT_EQ(device_view(*device, table, stream.view()), blocks(table));
    table.truncate(before);
  }
}

TEST_P(PageTables, GrowAndTruncate) {
  PageTable table(pool);
  EXPECT_EQ(table.pages(), 0);
  EXPECT_EQ(table.device_data(), nullptr);
  EXPECT_EQ(device_view(*device, table, stream.view()).size(), 0u);
  for (const int64_t pages : {1, 2, 15, 16, 17, 100}) {
    table.grow(pages);
    EXPECT_EQ(table.pages(), pages);
    EXPECT_EQ(device_view(*device, table, stream.view()), blocks(table));
  }
  table.grow(3);  // never shrinks
  EXPECT_EQ(table.pages(), 100);
  table.truncate(16);
  table.truncate(50);  // never grows
  EXPECT_EQ(table.pages(), 16);
  table.grow(20);
  EXPECT_EQ(device_view(*device, table, stream.view()), blocks(table));
  for (int64_t i = 0; i < table.pages(); ++i) {
    EXPECT_EQ(blocks(table)[static_cast<size_t>(i)], pool.data(table.page(i)));
  }
}

TEST_P(PageTables, DroppedPagesKeepTheirPlaces) {
  PageTable table(pool);
  table.grow(6);
  device_view(*device, table, stream.view());
  table.drop(1, 4);
  EXPECT_EQ(pool.used_blocks(), 3);
  EXPECT_EQ(table.pages(), 6);
  EXPECT_FALSE(table.dropped(0));
  EXPECT_TRUE(table.dropped(3));
  const auto view = device_view(*device, table, stream.view());
  EXPECT_EQ(view, blocks(table));
  EXPECT_EQ(view[1], nullptr);
  EXPECT_NE(view[4], nullptr);
  PageTable fork = table.fork(5);
  EXPECT_TRUE(fork.dropped(2));
  EXPECT_EQ(device_view(*device, fork, stream.view())[3], nullptr);
  table.truncate(2);
  EXPECT_EQ(pool.used_blocks(), 2);  // the fork's
  fork = PageTable(pool);
  table.truncate(0);
  EXPECT_EQ(pool.used_blocks(), 0);
}

// A window that was promised stays as it was; one that the undone call promised is cancelled.
TEST_P(PageTables, BackToKeepsAnEarlierWindow) {
  PageTable table(pool);
  const PageTable::Mark before_any = table.mark();
  table.reserve_window(100, 4);
  table.grow(2);
  const PageTable::Mark mark = table.mark();
  table.reserve_window(200, 9);
  table.grow(8);
  table.back_to(mark);
  EXPECT_EQ(table.pages(), 2);
  EXPECT_EQ(pool.reserved_blocks(), 2);
  table.back_to(before_any);
  EXPECT_EQ(pool.reserved_blocks(), 0);
  EXPECT_EQ(pool.used_blocks(), 0);
}

TEST_P(PageTables, ARingGrowsOnWhatItDropped) {
  PageTable table(pool), other(pool);
  table.reserve_window(100, 4);
  EXPECT_EQ(pool.reserved_blocks(), 4);
  EXPECT_EQ(table.mark().capacity, 100);
  const uint64_t held = pool.held_bytes();
  for (int64_t pages = 4; pages < 40; pages += 2) {
    table.grow(pages);
    EXPECT_EQ(pool.free_blocks(), 0);
    table.drop(std::max<int64_t>(1, pages - 3), pages - 1);
    EXPECT_EQ(pool.used_blocks() + pool.reserved_blocks(), 4);
    EXPECT_EQ(pool.held_bytes(), held);
  }
  other = table.fork(table.pages());  // pages shared with others need no reservation
  table.drop(table.pages() - 1, table.pages());
  EXPECT_EQ(pool.reserved_blocks(), 2);
  other.truncate(0);
  table.truncate(10);
  EXPECT_GT(pool.reserved_blocks(), 0);
  table.cancel_window();
  EXPECT_EQ(pool.reserved_blocks(), 0);
  table.truncate(0);
  EXPECT_EQ(pool.held_bytes(), 0U);
}

TEST_P(PageTables, UploadsOnlyWhatChanged) {
  PageTable table(pool);
  table.reserve(100, 0);
  table.grow(40);
  table.upload(stream.view());
  table.upload(stream.view());
  EXPECT_EQ(device->transfers().h2d_operations, 1u);
  table.grow(41);
  table.upload(stream.view());
  EXPECT_EQ(device->transfers().h2d_bytes, 41 * sizeof(std::byte*));
  table.truncate(10);
  table.upload(stream.view());
  EXPECT_EQ(device->transfers().h2d_operations, 2u);
}

TEST_P(PageTables, ForksShareUntilTheyWrite) {
  PageTable table(pool);
  table.grow(3);
  for (int i = 0; i < 3; ++i) write(table, i, i + 1);
  PageTable fork = table.fork(2);
  EXPECT_EQ(fork.pages(), 2);
  EXPECT_EQ(pool.used_blocks(), 3);
  EXPECT_TRUE(table.shared(1));
  EXPECT_FALSE(table.shared(2));
  EXPECT_FALSE(table.make_writable(2, stream.view()));
  EXPECT_TRUE(fork.make_writable(1, stream.view()));
  EXPECT_FALSE(fork.make_writable(1, stream.view()));
  EXPECT_EQ(read(fork, 1), 2);
  write(fork, 1, 77);
  EXPECT_EQ(read(table, 1), 2);
  EXPECT_EQ(read(fork, 1), 77);
  EXPECT_EQ(device_view(*device, fork, stream.view()), blocks(fork));
  EXPECT_EQ(table.fork(99).pages(), 3);
  table = PageTable(pool);
  EXPECT_EQ(pool.used_blocks(), 2);
  EXPECT_EQ(read(fork, 0), 1);
}

TEST_P(PageTables, ReservedGrowthAndCopiesCannotFail) {
  const auto limited = open(GetParam(), uint64_t{40 * kBlock});
  BlockPool small(*limited, MemorySpace::kDevice, kBlock, "test pages");
  const Stream on = limited->create_stream(StreamPriority::kNormal, "tables");
  PageTable table(small);
  table.grow(3);
  PageTable fork = table.fork(3);
  fork.reserve(10, 2);  // seven more, and a copy of the shared page 2
  EXPECT_EQ(fork.reserved_blocks(), 8);
  fork.reserve(10, 2);  // has them
  EXPECT_EQ(fork.reserved_blocks(), 8);
  EXPECT_THROW(for (;;) small.allocate(), BudgetError);  // takes everything that is not reserved
  EXPECT_THROW(table.grow(4), BudgetError);
  EXPECT_EQ(table.pages(), 3);
  EXPECT_NO_THROW(fork.make_writable(2, on.view()));
  for (int64_t pages = 4; pages <= 10; ++pages) EXPECT_NO_THROW(fork.grow(pages));
  EXPECT_THROW(fork.grow(11), BudgetError);
  EXPECT_EQ(fork.pages(), 10);
  EXPECT_THROW(fork.reserve(20, 0), BudgetError);
  EXPECT_EQ(fork.reserved_blocks(), 0);
  limited->synchronize(on.view());
}

// Entries may be overwritten while their old values are still being uploaded.
TEST_P(PageTables, OverwritesWaitForUploads) {
  PageTable table(pool), other(pool);
  table.grow(8);
  other.grow(1);
  const Event uploaded = device->create_event();
  table.upload(stream.view());
  const auto first = blocks(table);
  std::vector<std::byte*> seen(8);
  device->copy(seen.data(), table.device_data(), 8 * sizeof(std::byte*), CopyKind::kDeviceToHost,
               stream.view());
  device->record(uploaded.view(), stream.view());
  table.truncate(2);
  other.grow(2);  // takes a block that was the table's
  table.grow(8);
  device->synchronize(uploaded.view());
  EXPECT_EQ(seen, first);
  EXPECT_EQ(device_view(*device, table, stream.view()), blocks(table));
}

TEST_P(PageTables, TablesMove) {
  PageTable a(pool);
  a.grow(5);
  const auto before = blocks(a);
  PageTable b = std::move(a);
  EXPECT_EQ(blocks(b), before);
  PageTable c(pool);
  c.grow(2);
  c = std::move(b);
  EXPECT_EQ(pool.used_blocks(), 5);
  EXPECT_EQ(device_view(*device, c, stream.view()), before);
}

INSTANTIATE_TEST_SUITE_P(Devices, PageTables, ::testing::Values("cpu", "emulated"),
                         [](const auto& tested) { return std::string(tested.param); });

// A sequence as its owner manages it: pages are written once and copied on write. The model holds
// the value of each page.
struct Modelled {
  PageTable table;
  std::vector<int> values;
};

class RandomUse {
 public:
  RandomUse(Device& wrapped, unsigned seed) : device(wrapped), random_(seed) {}
  Device& device;

  void step() {
    const size_t choice = random_() % 8;
    if (sequences_.empty() || choice == 0) {
      sequences_.emplace(next_, Modelled{PageTable(pool_), {}});
      ++next_;
      return;
    }
    auto chosen = std::next(sequences_.begin(), static_cast<long>(random_() % sequences_.size()));
    Modelled& sequence = chosen->second;
    const auto pages = static_cast<int64_t>(sequence.values.size());
    if (choice == 1) {
      const int64_t kept = static_cast<int64_t>(random_()) % (pages + 1);
      PageTable table = sequence.table.fork(kept);
      std::vector<int> values(sequence.values.begin(), sequence.values.begin() + kept);
      sequences_.emplace(next_, Modelled{std::move(table), std::move(values)});
      ++next_;
    } else if (choice == 2) {
      device.synchronize(stream_.view());  // memory may be freed from here on
      sequences_.erase(chosen);
    } else if (choice == 3) {
      device.synchronize(stream_.view());
      const int64_t kept = static_cast<int64_t>(random_()) % (pages + 1);
      sequence.table.truncate(kept);
      sequence.values.resize(static_cast<size_t>(kept));
    } else if (choice == 4) {
      sequence.table.reserve(pages + 3, std::max<int64_t>(pages - 1, 0));
    } else if (choice == 5 && pages > 0) {
      const int64_t index = static_cast<int64_t>(random_()) % pages;
      sequence.table.make_writable(index, stream_.view());
      write(sequence, index);
    } else {
      const int64_t more = 1 + static_cast<int64_t>(random_() % 5);
      sequence.table.grow(pages + more);
      sequence.values.resize(static_cast<size_t>(pages + more), -1);
      for (int64_t i = pages; i < pages + more; ++i) write(sequence, i);
    }
  }

  void check() {
    std::map<PageId, int64_t> references;
    for (auto& [id, sequence] : sequences_) {
      ASSERT_EQ(sequence.table.pages(), static_cast<int64_t>(sequence.values.size()));
      for (int64_t i = 0; i < sequence.table.pages(); ++i) {
        const PageId page = sequence.table.page(i);
        ++references[page];
        ASSERT_EQ(sequence.table.blocks()[static_cast<size_t>(i)], pool_.data(page));
        const int value = sequence.values[static_cast<size_t>(i)];
        if (value < 0) continue;  // its fill was the operation that failed
        ASSERT_EQ(static_cast<int>(pool_.data(page)[0]), value) << "sequence " << id;
        ASSERT_EQ(static_cast<int>(pool_.data(page)[kBlock - 1]), value);
      }
    }
    for (const auto& [page, count] : references) ASSERT_EQ(pool_.references(page), count);
    ASSERT_EQ(pool_.used_blocks(), static_cast<int64_t>(references.size()));
  }

  // Checks every table as the device sees it.
  void check_device() {
    for (auto& [id, sequence] : sequences_) {
      const auto blocks = sequence.table.blocks();
      ASSERT_EQ(device_view(device, sequence.table, stream_.view()),
                std::vector<std::byte*>(blocks.begin(), blocks.end()));
    }
  }
  void finish() {
    device.synchronize(stream_.view());
    sequences_.clear();
    ASSERT_EQ(pool_.held_bytes(), 0u);
  }

 private:
  void write(Modelled& sequence, int64_t index) {
    const int value = static_cast<int>(random_() % 256);
    int& modelled = sequence.values[static_cast<size_t>(index)];
    modelled = -1;
    device.fill(pool_.data(sequence.table.page(index)), value, kBlock, stream_.view());
    modelled = value;
  }

  BlockPool pool_{device, MemorySpace::kDevice, kBlock, "test pages"};
  Stream stream_ = device.create_stream(StreamPriority::kNormal, "tables");
  std::map<int, Modelled> sequences_;
  int next_ = 0;
  std::mt19937 random_;
};

TEST(PageTableModel, RandomUseMatchesTheModel) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    const auto device = open("cpu");
    RandomUse use(*device, seed);
    for (int step = 0; step < 200; ++step) {
      use.step();
      ASSERT_NO_FATAL_FAILURE(use.check()) << "seed " << seed << " step " << step;
    }
    ASSERT_NO_FATAL_FAILURE(use.check_device());
    ASSERT_NO_FATAL_FAILURE(use.finish());
  }
}

TEST(PageTableModel, UploadsMatchOnTheEmulatedDevice) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    const auto device = open("emulated");
    RandomUse use(*device, seed);
    for (int step = 0; step < 100; ++step) {
      use.step();
      if (step % 10 != 9) continue;
      ASSERT_NO_FATAL_FAILURE(use.check_device()) << "seed " << seed;
    }
    ASSERT_NO_FATAL_FAILURE(use.finish());
  }
}

enum class Fault { kAllocation, kCopy };

void survive(Fault fault, int64_t nth, bool& fired) {
  const auto inner = open("cpu");
  FaultyDevice device(*inner);
  RandomUse use(device, 11);
  fault == Fault::kAllocation ? device.fail_allocation(nth) : device.fail_copy(nth);
  for (int step = 0; step < 60; ++step) {
    try {
      use.step();
    } catch (const Error&) {
      ASSERT_TRUE(device.fired());
    }
    ASSERT_NO_FATAL_FAILURE(use.check()) << "step " << step;
  }
  fired = device.fired();
  device.fail_copy(0);
  device.fail_allocation(0);
  ASSERT_NO_FATAL_FAILURE(use.check_device());
  ASSERT_NO_FATAL_FAILURE(use.finish());
}

TEST(PageTableModel, SurvivesEveryFailedAllocationAndCopy) {
  for (const Fault fault : {Fault::kAllocation, Fault::kCopy}) {
    bool fired = true;
    int64_t nth = 1;
    for (; fired; ++nth) {
      ASSERT_NO_FATAL_FAILURE(survive(fault, nth, fired)) << "fault " << nth;
    }
    EXPECT_GT(nth, 10);  // some call did fail
  }
}

}  // namespace
}  // namespace fasa
