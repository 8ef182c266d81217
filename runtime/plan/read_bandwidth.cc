#include "runtime/plan/read_bandwidth.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace fasa {

double read_bandwidth(size_t bytes, int passes) {
  std::vector<uint64_t> data(bytes / sizeof(uint64_t), 1);
  constexpr size_t kBlock = size_t{1} << 17;
  const size_t blocks = data.size() / kBlock;
  std::vector<uint64_t> sums(blocks);
  double best = 1e9;
  for (int pass = 0; pass < passes; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    tbb::parallel_for(size_t{0}, blocks, [&](size_t block) {
      const uint64_t* values = data.data() + block * kBlock;
      uint64_t lanes[32] = {};
      for (size_t i = 0; i < kBlock; i += 32) {
        for (size_t lane = 0; lane < 32; ++lane) lanes[lane] += values[i + lane];
      }
      for (const uint64_t lane : lanes) sums[block] += lane;
    });
    const auto passed = std::chrono::steady_clock::now() - begin;
    best = std::min(best, std::chrono::duration<double>(passed).count());
  }
  return static_cast<double>(blocks * kBlock * sizeof(uint64_t)) / best;
}

}  // namespace fasa
