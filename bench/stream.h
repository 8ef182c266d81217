// The machine's read bandwidth: the floor that every other figure is held against.
#pragma once

#include <tbb/parallel_for.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace fasa::bench {

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Bytes per second that all threads together read from a buffer larger than the last-level cache;
// the best of several passes.
inline double stream_bandwidth(size_t bytes = size_t{1} << 30, int passes = 7) {
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
    best = std::min(best, seconds_since(begin));
  }
  return static_cast<double>(blocks * kBlock * sizeof(uint64_t)) / best;
}

}  // namespace fasa::bench
