// Pinned host memory: how it is split and shared, and the message where the system refuses it.
#include "offload/cuda/pinned_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "offload/host/pinning.h"
#include "runtime/base/error.h"
#include "tests/support/fake_cuda.h"

namespace fasa {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;

TEST(PinnedPieces, CoverEveryByteOnce) {
  EXPECT_TRUE(pinned_pieces(0).empty());
  EXPECT_EQ(pinned_pieces(size_t{64} << 30).size(), 1u);
  EXPECT_EQ(pinned_pieces((size_t{64} << 30) + 1).size(), 2u);
  for (const size_t bytes : {1u, 99u, 100u, 101u, 1000u}) {
    size_t end = 0;
    for (const PinnedPiece& piece : pinned_pieces(bytes, 100)) {
      EXPECT_EQ(piece.offset, end);
      EXPECT_GT(piece.bytes, 0u);
      EXPECT_LE(piece.bytes, 100u);
      end += piece.bytes;
    }
    EXPECT_EQ(end, bytes);
  }
}

TEST(PinningAdvice, FitsTheSystem) {
  PinningLimits limits;
  EXPECT_THAT(pinning_advice(limits, 0, 100), HasSubstr("free memory"));
  limits.container = true;
  EXPECT_THAT(pinning_advice(limits, 0, 100), HasSubstr("--memory"));
  limits.locked_bytes = 150;
  EXPECT_THAT(pinning_advice(limits, 40, 100), HasSubstr("--memory"));
  EXPECT_THAT(pinning_advice(limits, 51, 100), HasSubstr("--ulimit memlock=-1"));
  limits.container = false;
  EXPECT_THAT(pinning_advice(limits, UINT64_MAX, UINT64_MAX), HasSubstr("ulimit -l"));
  limits.wsl = true;
  EXPECT_THAT(pinning_advice(limits, 51, 100), HasSubstr(".wslconfig"));
}

class PinnedArenaTest : public ::testing::Test {
 protected:
  FakeCuda fake_;
  PinnedArena arena_{fake_, {}, 0, 2};
};

TEST_F(PinnedArenaTest, LargeBlocksArePinnedAndGivenBack) {
  std::byte* const data = arena_.allocate(100 * kMiB + 5, "rows");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 4096, 0u);
  EXPECT_EQ(fake_.registered.size(), 1u);
  EXPECT_EQ(arena_.pinned_bytes(), 100 * kMiB + 4096);
  std::memset(data, 1, 100 * kMiB + 5);
  EXPECT_EQ(arena_.copyable(data, 100 * kMiB), 100 * kMiB);
  EXPECT_TRUE(arena_.in_one_piece(data + 5, 100 * kMiB));
  EXPECT_FALSE(arena_.in_one_piece(data + 4096, 100 * kMiB + 1));
  EXPECT_FALSE(arena_.in_one_piece(data - 1, 1));
  const std::vector<std::byte> heap(8);
  EXPECT_EQ(arena_.copyable(heap.data(), 8), 8u);
  EXPECT_FALSE(arena_.in_one_piece(heap.data(), 8));
  arena_.free(data, 100 * kMiB + 5);
  EXPECT_TRUE(fake_.registered.empty());
  EXPECT_EQ(arena_.pinned_bytes(), 0u);
}

TEST_F(PinnedArenaTest, SmallBlocksShareRegistrationsAndNeverBytes) {
  std::mt19937 random(1);
  std::vector<std::pair<std::byte*, size_t>> blocks;
  for (int i = 0; i < 2000; ++i) {
    if (!blocks.empty() && random() % 3 == 0) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      const auto [data, bytes] = blocks.back();
      for (size_t at = 0; at < bytes; at += 997) {
        ASSERT_EQ(data[at], static_cast<std::byte>(bytes)) << "overwritten";
      }
      arena_.free(data, bytes);
      blocks.pop_back();
    } else {
      const size_t bytes = 1 + random() % (i % 10 == 0 ? 900000 : 20000);
      std::byte* const data = arena_.allocate(bytes, "test");
      ASSERT_EQ(reinterpret_cast<uintptr_t>(data) % 4096, 0u);
      std::memset(data, static_cast<int>(bytes & 0xff), bytes);
      blocks.emplace_back(data, bytes);
    }
  }
  EXPECT_LT(fake_.registrations, 60);
  EXPECT_EQ(fake_.registered.size(), arena_.pinned_bytes() / PinnedArena::kSlabBytes);
  for (const auto& [data, bytes] : blocks) arena_.free(data, bytes);
  // All runs have been merged into whole slabs.
  const int before = fake_.registrations;
  for (size_t i = 0; i < fake_.registered.size() * 4; ++i) {
    arena_.allocate(PinnedArena::kMaxInSlab, "test");
  }
  EXPECT_EQ(fake_.registrations, before);
}

TEST_F(PinnedArenaTest, ARefusalSaysWhatToDoAndChangesNothing) {
  for (const size_t bytes : {size_t{100}, 3 * kMiB}) {
    fake_.fail_call("register_host", 1, cuda_status::kOutOfMemory);
    try {
      arena_.allocate(bytes, "row pages");
      ADD_FAILURE() << "pinned";
    } catch (const BudgetError& error) {
      EXPECT_EQ(error.limit(), "pinned_memory");
      EXPECT_EQ(error.asked_bytes(), bytes);
      EXPECT_THAT(error.what(),
                  ::testing::AllOf(HasSubstr("row pages"), HasSubstr("cudaHostRegister of"),
                                   HasSubstr("offload/cuda/pinned_arena.cc:")));
    }
    EXPECT_EQ(arena_.pinned_bytes(), 0u);
    EXPECT_TRUE(fake_.registered.empty());
    EXPECT_EQ(fake_.take_last_error(), cuda_status::kSuccess);
  }
}

}  // namespace
}  // namespace fasa
