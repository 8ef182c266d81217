#include "runtime/plan/read_bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "runtime/base/parallel.h"

namespace fasa {
namespace {

constexpr size_t kBlock = size_t{1} << 15;  // values
constexpr size_t kLanes = 32;               // independent sums, added in parallel

uint64_t sum_of(const uint64_t* values) {
  uint64_t lanes[kLanes] = {};
  for (size_t i = 0; i < kBlock; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane];
  }
  uint64_t sum = 0;
  for (const uint64_t lane : lanes) sum += lane;
  return sum;
}

}  // namespace

double read_once(std::span<const uint64_t> values) {
  const size_t blocks = values.size() / kBlock;
  std::atomic<uint64_t> total{0};  // keeps the compiler from removing the reads
  const auto begin = std::chrono::steady_clock::now();
  parallel_for(size_t{0}, blocks, [&](size_t block) {
    total.fetch_add(sum_of(values.data() + block * kBlock), std::memory_order_relaxed);
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(blocks * kBlock * sizeof(uint64_t)) / seconds.count();
}

double read_bandwidth(size_t bytes, int passes) {
  const std::vector<uint64_t> values(bytes / sizeof(uint64_t), 1);
  double best = 0;
  for (int pass = 0; pass < passes; ++pass) best = std::max(best, read_once(values));
  return best;
}

}  // namespace fasa
