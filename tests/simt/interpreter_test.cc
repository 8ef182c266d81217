// The interpreter itself: what it runs, in which orders, and what it rejects.
#include "tests/support/simt_interpreter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

namespace fasa {
namespace {

using Order = SimtInterpreter::Order;
constexpr Order kOrders[] = {Order::kRising, Order::kFalling, Order::kRandom};

class InOrder : public ::testing::TestWithParam<Order> {
 protected:
  SimtInterpreter interpreter_{GetParam(), 7};
};

TEST_P(InOrder, EveryThreadOfEveryBlockRunsOnce) {
  std::vector<int> seen(2 * 3 * 4 * 64);
  interpreter_.run({2, 3, 4}, 64, [&] {
    const int block =
        (simt::block_z() * simt::grid_y() + simt::block_y()) * simt::grid_x() + simt::block_x();
    ++seen[static_cast<size_t>(block * simt::block_threads() + simt::thread_index())];
  });
  EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
}

TEST_P(InOrder, BarriersOrderSharedMemory) {
  int64_t sums[5] = {};
  interpreter_.run({5, 1, 1, 128 * sizeof(int)}, 128, [&] {
    int* values = &simt::shared<int>();
    const int thread = simt::thread_index();
    values[thread] = thread + simt::block_x();
    for (int half = 64; half > 0; half /= 2) {
      simt::sync_block();
      if (thread < half) values[thread] += values[thread + half];
    }
    if (thread == 0) sums[simt::block_x()] = values[0];
  });
  for (int block = 0; block < 5; ++block) EXPECT_EQ(sums[block], 127 * 64 + 128 * block);
}

TEST_P(InOrder, ThreadsThatEndedAreNotWaitedFor) {
  int after = 0;
  interpreter_.run({}, 64, [&] {
    if (simt::thread_index() % 2 == 0) return;
    simt::sync_block();
    ++after;
  });
  EXPECT_EQ(after, 32);
}

TEST_P(InOrder, CollectivesSeeAllLanes) {
  std::vector<int> wrong(96);
  interpreter_.run({}, 96, [&] {
    const int lane = simt::lane();
    int errors = simt::ballot(lane % 3 == 0) == 0x49249249u ? 0 : 1;
    errors += simt::shuffle(lane * 10, 31 - lane) == (31 - lane) * 10 ? 0 : 1;
    errors += simt::shuffle_xor(lane + 0.5, 5) == (lane ^ 5) + 0.5 ? 0 : 1;
    errors += simt::warp_sum(lane) == 496 ? 0 : 1;
    errors += simt::warp_max(lane ^ 21) == 31 ? 0 : 1;
    errors += simt::warp_min(uint64_t{100} + static_cast<uint64_t>(lane)) == 100 ? 0 : 1;
    errors += simt::warp_prefix_sum(lane) == lane * (lane + 1) / 2 ? 0 : 1;
    wrong[static_cast<size_t>(simt::thread_index())] = errors;
  });
  EXPECT_EQ(wrong, std::vector<int>(96));
}

// The two halves of a warp take different branches with different collectives.
TEST_P(InOrder, DivergedLanesMeetInMasks) {
  std::vector<uint32_t> votes(32);
  interpreter_.run({}, 32, [&] {
    const auto lane = static_cast<size_t>(simt::lane());
    if (lane < 16) {
      for (int i = 0; i < 5; ++i) votes[lane] = simt::ballot(lane % 2 == 0, 0x0000ffffu);
    } else {
      votes[lane] = static_cast<uint32_t>(simt::shuffle(simt::lane(), 20, 0xffff0000u));
    }
    simt::sync_warp();
  });
  for (size_t lane = 0; lane < 32; ++lane) EXPECT_EQ(votes[lane], lane < 16 ? 0x5555u : 20u);
}

TEST_P(InOrder, AtomicsAddUp) {
  int total = 0;
  uint32_t largest = 0;
  uint32_t bits = 0;
  uint64_t wide = 0;
  std::vector<int> tickets(8 * 64);
  interpreter_.run({8}, 64, [&] {
    ++tickets[static_cast<size_t>(simt::atomic_add(&total, 1))];
    simt::atomic_max(&largest, static_cast<uint32_t>(simt::thread_index() * 3));
    simt::atomic_or(&bits, 1u << simt::lane());
    simt::atomic_add(&wide, uint64_t{1} << 40);
  });
  EXPECT_EQ(total, 512);
  EXPECT_EQ(tickets, std::vector<int>(512, 1));
  EXPECT_EQ(largest, 189u);
  EXPECT_EQ(bits, ~0u);
  EXPECT_EQ(wide, uint64_t{512} << 40);
}

TEST_P(InOrder, CopiesAreThereOnceWaitedFor) {
  const std::vector<simt::Word16> from(128, {{1, 2, 3, 4}});
  int early = 0, late = 0;
  interpreter_.run({1, 1, 1, 128 * sizeof(simt::Word16)}, 64, [&] {
    auto* words = &simt::shared<simt::Word16>();
    const int thread = simt::thread_index();
    simt::copy_async(words + thread, from.data() + thread);
    simt::commit_copies();
    simt::copy_async(words + 64 + thread, from.data() + 64 + thread);
    simt::commit_copies();
    simt::wait_copies<1>();
    simt::sync_block();
    if (words[63 - thread].words[3] != 4) ++late;
    if (words[64 + thread].words[3] == 4) ++early;
    simt::wait_copies<0>();
    simt::sync_block();
    if (words[127 - thread].words[3] != 4) ++late;
  });
  EXPECT_EQ(late, 0);
  if (GetParam() == Order::kRising) {
    EXPECT_EQ(early, 0);
  }
  if (GetParam() == Order::kFalling) {
    EXPECT_EQ(early, 64);
  }
}

INSTANTIATE_TEST_SUITE_P(All, InOrder, ::testing::ValuesIn(kOrders), [](const auto& test) {
  return test.param == Order::kRising    ? "Rising"
         : test.param == Order::kFalling ? "Falling"
                                         : "Random";
});

std::string error_of(const std::function<void()>& body, int threads = 64) {
  SimtInterpreter interpreter;
  try {
    interpreter.run({}, threads, body);
  } catch (const SimtError& error) {
    return error.what();
  }
  return "";
}

TEST(SimtInterpreter, SharedMemoryStartsAsAPattern) {
  SimtInterpreter interpreter;
  int patterns = 0;
  interpreter.run({3, 1, 1, 64}, 32, [&] {
    std::byte& mine = simt::shared_memory()[simt::lane()];
    patterns += mine == std::byte{0xA5} ? 1 : 0;
    mine = std::byte{1};
  });
  EXPECT_EQ(patterns, 96);
}

TEST(SimtInterpreter, RefusesLanesThatNeverCome) {
  const std::string error = error_of([] {
    if (simt::lane() < 31) simt::ballot(true);
    simt::sync_block();
  });
  EXPECT_NE(error.find("never come"), std::string::npos) << error;
  EXPECT_NE(error.find("block (0, 0, 0) thread 0"), std::string::npos) << error;
}

TEST(SimtInterpreter, RefusesEndedLanes) {
  EXPECT_NE(error_of([] {
              if (simt::lane() == 9) return;
              simt::sync_warp();
            }).find("lane 9, which has ended"),
            std::string::npos);
}

TEST(SimtInterpreter, RefusesDifferentMasksAndCalls) {
  EXPECT_NE(error_of([] { simt::ballot(true, simt::lane() == 0 ? 3u : ~0u); }).find("another"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              if (simt::lane() == 4) {
                simt::shuffle(1, 0);
              } else {
                simt::shuffle(1.0, 0);
              }
            }).find("another"),
            std::string::npos);
}

TEST(SimtInterpreter, RefusesForeignMasksAndSources) {
  EXPECT_NE(error_of([] { simt::ballot(true, 0xfffffffeu); }).find("without its caller"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              if (simt::lane() < 2) simt::shuffle(1, 2, 3u);
            }).find("outside the mask"),
            std::string::npos);
}

TEST(SimtInterpreter, RefusesCopiesBesideWholeWords) {
  SimtInterpreter interpreter;
  const std::vector<simt::Word16> from(2);
  EXPECT_THROW(interpreter.run({1, 1, 1, 64}, 32,
                               [&] {
                                 auto* to = &simt::shared<simt::Word16>();
                                 const auto* beside = reinterpret_cast<const std::byte*>(&from[0]);
                                 simt::copy_async(
                                     to, reinterpret_cast<const simt::Word16*>(beside + 8));
                               }),
               SimtError);
}

TEST(SimtInterpreter, RefusesPartialWarps) {
  EXPECT_NE(error_of([] {}, 33).find("33"), std::string::npos);
}

// The limits of CUDA for grids and shared memory.
TEST(SimtInterpreter, RefusesWhatNoLaunchMayAskFor) {
  SimtInterpreter interpreter;
  const auto nothing = [] {};
  EXPECT_NO_THROW(interpreter.run({1, 65535, 1, SimtInterpreter::kMostShared}, 32, nothing));
  EXPECT_THROW(interpreter.run({1, 65536, 1}, 32, nothing), SimtError);
  EXPECT_THROW(interpreter.run({1, 1, 65536}, 32, nothing), SimtError);
  EXPECT_THROW(interpreter.run({1, 1, 1, SimtInterpreter::kMostShared + 1}, 32, nothing),
               SimtError);
}

// Blocks that run by turns detect code that assumes one block runs after the other; each block has
// its own shared memory.
TEST(SimtInterpreter, RandomOrderRunsBlocksByTurns) {
  int torn = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SimtInterpreter interpreter(Order::kRandom, seed);
    int entered = 0, left = 0;
    bool met = false;
    interpreter.run({2, 1, 1, sizeof(int)}, 32, [&] {
      if (simt::thread_index() == 0) simt::shared<int>() = simt::block_x();
      if (simt::thread_index() == 0) ++entered;
      simt::sync_block();
      met |= entered == 2 && left == 0;
      simt::sync_block();
      EXPECT_EQ(simt::shared<int>(), simt::block_x());
      if (simt::thread_index() == 0) ++left;
    });
    EXPECT_EQ(left, 2);
    torn += met ? 1 : 0;
  }
  EXPECT_GT(torn, 3);
  EXPECT_LT(torn, 20);
}

TEST(SimtInterpreter, RandomOrderFindsMissingBarriers) {
  bool wrong = false;
  for (unsigned seed = 0; seed < 10; ++seed) {
    SimtInterpreter interpreter(Order::kRandom, seed);
    interpreter.run({1, 1, 1, 64 * sizeof(int)}, 64, [&] {
      int* values = &simt::shared<int>();
      values[simt::thread_index()] = 1;
      if (values[63 - simt::thread_index()] != 1) wrong = true;
    });
  }
  EXPECT_TRUE(wrong);
}

// The interpreter is usable after an error.
TEST(SimtInterpreter, GoesOnAfterAnError) {
  SimtInterpreter interpreter;
  EXPECT_THROW(interpreter.run({}, 32, [] { simt::ballot(true, 0xfffffffeu); }), SimtError);
  int ran = 0;
  interpreter.run({}, 32, [&] { ran += simt::warp_sum(1) / 32; });
  EXPECT_EQ(ran, 32);
}

}  // namespace
}  // namespace fasa
