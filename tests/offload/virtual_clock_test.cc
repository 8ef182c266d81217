#include "offload/emulated/virtual_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

namespace fasa {
namespace {

using Mark = VirtualClock::Mark;

// Round figures: 100 B/s in each direction, one second of latency, 1000 B/s of device memory.
constexpr VirtualClock::Rates kRates = {
    .link_bandwidth = 100, .link_latency = 1, .memory_bandwidth = 1000, .chunk_bytes = 100};

class VirtualClockTest : public ::testing::Test {
 protected:
  VirtualClock clock{kRates};
  uint64_t sequence = 0;

  void h2d(VirtualClock::StreamKey stream, uint64_t bytes) {
    clock.add_work(stream, ++sequence, clock.now(), {.fixed = 0},
                   {.device_bytes = 0, .h2d_bytes = bytes, .d2h_bytes = 0});
  }
  void d2h(VirtualClock::StreamKey stream, uint64_t bytes) {
    clock.add_work(stream, ++sequence, clock.now(), {.fixed = 0},
                   {.device_bytes = 0, .h2d_bytes = 0, .d2h_bytes = bytes});
  }
  void compute(VirtualClock::StreamKey stream, double seconds) {
    clock.add_work(stream, ++sequence, clock.now(), {.fixed = seconds}, {});
  }
  std::shared_ptr<Mark> mark(VirtualClock::StreamKey stream) {
    auto result = std::make_shared<Mark>();
    clock.add_mark(stream, ++sequence, clock.now(), result);
    return result;
  }
  void wait(VirtualClock::StreamKey stream, std::shared_ptr<Mark> on) {
    clock.add_wait(stream, ++sequence, std::move(on));
  }
  VirtualClock::StreamKey normal() { return clock.open_stream(StreamPriority::kNormal); }
  VirtualClock::StreamKey high() { return clock.open_stream(StreamPriority::kHigh); }
};

TEST_F(VirtualClockTest, NothingTakesNoTime) {
  const auto stream = normal();
  const auto start = mark(stream);
  EXPECT_EQ(clock.wait_for(*start), 0);
  EXPECT_EQ(clock.wait_for(stream, sequence), 0);
}

TEST_F(VirtualClockTest, AKernelTakesTheLongerOfItsBytesAndItsOperations) {
  VirtualClock::Rates rates = kRates;
  rates.operations = 10;
  VirtualClock counted(rates);
  const auto stream = counted.open_stream(StreamPriority::kNormal);
  counted.add_work(stream, 1, 0, {.fixed = 0.5}, {.device_bytes = 2000, .operations = 30});
  EXPECT_DOUBLE_EQ(counted.wait_for(stream, 1), 0.5 + 3);
  counted.add_work(stream, 2, 0, {.fixed = 0.5}, {.device_bytes = 4000, .operations = 30});
  EXPECT_DOUBLE_EQ(counted.wait_for(stream, 2), 3.5 + 0.5 + 4);
  // Instructions may take longer than either.
  counted.add_work(stream, 3, 0, {.byte = 0.01}, {.device_bytes = 2000, .operations = 30});
  EXPECT_DOUBLE_EQ(counted.wait_for(stream, 3), 8 + 20);
  counted.add_work(stream, 4, 0, {.operation = 0.5}, {.device_bytes = 2000, .operations = 30});
  EXPECT_DOUBLE_EQ(counted.wait_for(stream, 4), 28 + 15);
}

TEST_F(VirtualClockTest, TransferIsBytesOverBandwidthPlusLatency) {
  const auto stream = normal();
  h2d(stream, 250);
  EXPECT_DOUBLE_EQ(clock.wait_for(*mark(stream)), 2.5 + 1);
}

TEST_F(VirtualClockTest, TransfersOfOneStreamPayLatencyEach) {
  const auto stream = normal();
  h2d(stream, 100);
  h2d(stream, 100);
  EXPECT_DOUBLE_EQ(clock.wait_for(*mark(stream)), 4);
}

TEST_F(VirtualClockTest, LatencyDoesNotOccupyTheLink) {
  const auto a = normal(), b = normal();
  h2d(a, 100);
  h2d(b, 100);
  const auto end_a = mark(a), end_b = mark(b);
  EXPECT_DOUBLE_EQ(clock.wait_for(*end_a), 2);  // link 0-1
  EXPECT_DOUBLE_EQ(clock.wait_for(*end_b), 3);  // link 1-2
}

TEST_F(VirtualClockTest, DirectionsAreServedSideBySide) {
  const auto a = normal(), b = normal();
  h2d(a, 300);
  d2h(b, 300);
  EXPECT_DOUBLE_EQ(clock.wait_for(*mark(a)), 4);
  EXPECT_DOUBLE_EQ(clock.wait_for(*mark(b)), 4);
}

TEST_F(VirtualClockTest, OneDirectionIsShared) {
  const auto a = normal(), b = normal();
  h2d(a, 300);
  h2d(b, 300);  // the same total in the queue, enqueued later
  const auto end_a = mark(a), end_b = mark(b);
  EXPECT_DOUBLE_EQ(clock.wait_for(*end_b), 7);
  EXPECT_DOUBLE_EQ(clock.wait_for(*end_a), 4);
}

TEST_F(VirtualClockTest, HighPriorityOvertakesBetweenChunks) {
  const auto low = normal(), urgent = high();
  h2d(low, 500);
  compute(urgent, 1.5);
  h2d(urgent, 100);  // ready at 1.5, in the middle of the second chunk
  const auto end_low = mark(low), end_urgent = mark(urgent);
  EXPECT_DOUBLE_EQ(clock.wait_for(*end_urgent), 4);  // link 2-3
  EXPECT_DOUBLE_EQ(clock.wait_for(*end_low), 7);     // link 0-2 and 3-6
}

TEST_F(VirtualClockTest, EqualPriorityDoesNotOvertake) {
  const auto a = normal(), b = normal();
  h2d(a, 500);
  compute(b, 1.5);
  h2d(b, 100);
  const auto end_a = mark(a), end_b = mark(b);
  EXPECT_DOUBLE_EQ(clock.wait_for(*end_b), 7);  // link 5-6
  EXPECT_DOUBLE_EQ(clock.wait_for(*end_a), 6);
}

TEST_F(VirtualClockTest, KernelIsLaunchPlusDeviceBytes) {
  const auto stream = normal();
  clock.add_work(stream, ++sequence, 0, {.fixed = 0.5},
                 {.device_bytes = 2000, .h2d_bytes = 0, .d2h_bytes = 0});
  EXPECT_DOUBLE_EQ(clock.wait_for(*mark(stream)), 2.5);
}

TEST_F(VirtualClockTest, KernelThatFetchesEndsWithTheLaterOfLinkAndMemory) {
  const auto a = normal();
  // Link: 0.5 launch, 2 s of bytes, 1 s of latency. Memory: 0.5 + 0.2.
  clock.add_work(a, ++sequence, 0, {.fixed = 0.5},
                 {.device_bytes = 200, .h2d_bytes = 200, .d2h_bytes = 0});
  EXPECT_DOUBLE_EQ(clock.wait_for(*mark(a)), 3.5);
  VirtualClock other(kRates);
  const auto b = other.open_stream(StreamPriority::kNormal);
  other.add_work(b, 1, 0, {.fixed = 0.5},
                 {.device_bytes = 9000, .h2d_bytes = 100, .d2h_bytes = 100});
  EXPECT_DOUBLE_EQ(other.wait_for(b, 1), 9.5);
}

TEST_F(VirtualClockTest, OperationInBothDirectionsEndsWithTheLater) {
  const auto a = normal();
  clock.add_work(a, ++sequence, 0, {.fixed = 0},
                 {.device_bytes = 0, .h2d_bytes = 100, .d2h_bytes = 400});
  EXPECT_DOUBLE_EQ(clock.wait_for(*mark(a)), 5);
}

TEST_F(VirtualClockTest, StreamsComputeSideBySide) {
  const auto a = normal(), b = normal();
  compute(a, 3);
  compute(b, 5);
  EXPECT_DOUBLE_EQ(clock.wait_for(*mark(a)), 3);
  EXPECT_DOUBLE_EQ(clock.wait_for(*mark(b)), 5);
}

TEST_F(VirtualClockTest, WaitHoldsLaterWorkUpOnly) {
  const auto a = normal(), b = normal();
  compute(a, 3);
  const auto produced = mark(a);
  compute(b, 1);
  const auto before = mark(b);
  wait(b, produced);
  compute(b, 1);
  const auto after = mark(b);
  EXPECT_DOUBLE_EQ(clock.wait_for(*after), 4);
  EXPECT_DOUBLE_EQ(before->seconds, 1);
}

TEST_F(VirtualClockTest, WaitForWhatPassedLongAgoIsFree) {
  const auto a = normal(), b = normal();
  compute(a, 1);
  const auto produced = mark(a);
  compute(b, 5);
  wait(b, produced);
  EXPECT_DOUBLE_EQ(clock.wait_for(*mark(b)), 5);
}

TEST_F(VirtualClockTest, HostTimeHoldsLaterWorkUp) {
  const auto a = normal(), b = normal();
  compute(a, 3);
  clock.wait_for(a, sequence);
  EXPECT_DOUBLE_EQ(clock.now(), 3);
  compute(b, 1);
  EXPECT_DOUBLE_EQ(clock.wait_for(*mark(b)), 4);
  h2d(b, 100);
  EXPECT_DOUBLE_EQ(clock.wait_for(*mark(b)), 6);
}

// A transfer that continues after the host's wait still competes with work enqueued later.
TEST_F(VirtualClockTest, WorkAfterASynchronizeOvertakesWhatIsLeft) {
  const auto low = normal(), urgent = high();
  h2d(low, 1000);
  const auto end_low = mark(low);
  compute(urgent, 2);
  clock.wait_for(urgent, sequence);
  EXPECT_FALSE(end_low->resolved);
  h2d(urgent, 100);  // not before 2: the link is between chunks
  const auto end_urgent = mark(urgent);
  EXPECT_DOUBLE_EQ(clock.wait_for(*end_urgent), 4);
  EXPECT_DOUBLE_EQ(clock.wait_for(*end_low), 12);
}

TEST_F(VirtualClockTest, AskingForTimesInBetweenChangesNothing) {
  std::vector<double> ends[2];
  for (const bool ask : {false, true}) {
    VirtualClock fresh(kRates);
    const auto a = fresh.open_stream(StreamPriority::kNormal);
    const auto b = fresh.open_stream(StreamPriority::kHigh);
    std::vector<std::shared_ptr<Mark>> marks;
    uint64_t n = 0;
    for (int i = 0; i < 20; ++i) {
      const auto stream = i % 3 == 0 ? b : a;
      fresh.add_work(stream, ++n, 0, {.fixed = 0.3},
                     {.device_bytes = 100, .h2d_bytes = i * 37u, .d2h_bytes = i * 11u});
      marks.push_back(std::make_shared<Mark>());
      fresh.add_mark(stream, ++n, 0, marks.back());
    }
    if (ask) {
      for (const auto& m : marks) fresh.wait_for(*m);
    }
    fresh.wait_for(a, n);
    fresh.wait_for(b, n);
    for (const auto& m : marks) ends[ask].push_back(m->seconds);
  }
  EXPECT_EQ(ends[0], ends[1]);
}

TEST_F(VirtualClockTest, OrderOfAddingAcrossStreamsChangesNothing) {
  struct Added {
    int stream;
    uint64_t number;
  };
  std::vector<double> first;
  for (unsigned seed = 0; seed < 50; ++seed) {
    VirtualClock fresh(kRates);
    std::vector<VirtualClock::StreamKey> keys;
    for (int s = 0; s < 4; ++s) {
      keys.push_back(fresh.open_stream(s == 2 ? StreamPriority::kHigh : StreamPriority::kNormal));
    }
    std::vector<std::shared_ptr<Mark>> marks(81);
    for (auto& m : marks) m = std::make_shared<Mark>();
    // Operation i is the i-th enqueued, on stream i % 4; every fifth waits for an earlier one.
    std::vector<uint64_t> next = {1, 2, 3, 4};
    std::mt19937 random(seed);
    for (int left = 80; left > 0; --left) {
      size_t s = random() % 4;
      while (next[s] > 80) s = (s + 1) % 4;
      const uint64_t i = next[s];
      next[s] += 4;
      if (i % 5 == 0) fresh.add_wait(keys[s], i, marks[i - 3]);
      fresh.add_work(keys[s], i, 0, {.fixed = 0.25},
                     {.device_bytes = i * 10, .h2d_bytes = i % 3 * 170, .d2h_bytes = i % 2 * 60});
      fresh.add_mark(keys[s], i, 0, marks[i]);
    }
    std::vector<double> ends;
    for (size_t i = 1; i <= 80; ++i) ends.push_back(fresh.wait_for(*marks[i]));
    if (seed == 0) first = ends;
    EXPECT_EQ(ends, first) << "seed " << seed;
  }
}

TEST_F(VirtualClockTest, TransfersThatNobodyWaitsForAreForgotten) {
  const auto compute_stream = normal(), write_back = normal();
  size_t most = 0;
  for (int step = 0; step < 10000; ++step) {
    d2h(write_back, 50);
    compute(compute_stream, 2);
    clock.wait_for(compute_stream, sequence);
    most = std::max(most, clock.pending_operations());
  }
  EXPECT_LE(most, 2u);
  EXPECT_DOUBLE_EQ(clock.now(), 20000);
}

TEST_F(VirtualClockTest, ClosedStreamsCountUntilTheyAreResolved) {
  const auto a = normal(), b = normal();
  h2d(a, 300);
  clock.close_stream(a);
  h2d(b, 100);
  EXPECT_DOUBLE_EQ(clock.wait_for(*mark(b)), 5);  // link 3-4, behind the closed stream's
  EXPECT_EQ(clock.known_streams(), 1u);
}

TEST_F(VirtualClockTest, WaitingForWhatWasNeverAddedIsAnError) {
  normal();
  EXPECT_THROW(clock.wait_for(Mark{}), std::logic_error);
}

}  // namespace
}  // namespace fasa
