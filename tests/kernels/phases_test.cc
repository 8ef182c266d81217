#include "kernels/cpu/phases.h"

#include <gtest/gtest.h>
#include <oneapi/tbb/task_arena.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace fasa::cpu {
namespace {

// Every task runs once, after all tasks of the phases before its own.
void expect_order(const std::vector<size_t>& sizes, int threads) {
  std::vector<std::atomic<size_t>> done(sizes.size());
  std::vector<std::vector<std::atomic<int>>> runs;
  for (const size_t size : sizes) runs.emplace_back(size);
  std::atomic<int> early{0};
  const auto work_of = [&](size_t phase) {
    return [&, phase](size_t i) {
      for (size_t earlier = 0; earlier < phase; ++earlier) early += done[earlier] != sizes[earlier];
      ++runs[phase][i];
      ++done[phase];
    };
  };
  std::vector<decltype(work_of(0))> works;
  for (size_t phase = 0; phase < sizes.size(); ++phase) works.push_back(work_of(phase));
  std::vector<Phase> phases;
  for (size_t phase = 0; phase < sizes.size(); ++phase)
    phases.emplace_back(sizes[phase], works[phase]);
  tbb::task_arena arena(threads);
  arena.execute([&] { run_phases(phases, threads); });
  EXPECT_EQ(early, 0);
  for (const auto& phase : runs) {
    for (const auto& count : phase) EXPECT_EQ(count, 1);
  }
}

TEST(Phases, RunEveryTaskOnceInOrder) {
  for (const int threads : {1, 2, 3, 8}) {
    expect_order({}, threads);
    expect_order({0}, threads);
    expect_order({1}, threads);
    expect_order({5, 0, 1, 7}, threads);
    for (int round = 0; round < 200; ++round) expect_order({16, 3, 16, 3}, threads);
  }
}

TEST(Phases, AnExceptionEndsThemAll) {
  for (const int threads : {1, 2, 4}) {
    std::atomic<int> later{0};
    const auto fails = [](size_t i) {
      if (i == 3) throw std::runtime_error("task 3");
    };
    const auto counts = [&](size_t) { ++later; };
    const Phase phases[] = {{8, fails}, {8, counts}};
    tbb::task_arena arena(threads);
    EXPECT_THROW(arena.execute([&] { run_phases(phases, threads); }), std::runtime_error);
    EXPECT_EQ(later, 0) << "every task of the first phase ends before the second begins";
  }
}

}  // namespace
}  // namespace fasa::cpu
