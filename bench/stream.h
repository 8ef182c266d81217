// The machine's read bandwidth: the floor that every other figure is held against.
#pragma once

#include <benchmark/benchmark.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "offload/device.h"

namespace fasa::bench {

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A buffer that all threads together read from end to end: several times the last-level cache, in
// huge pages where there are any, as the runtime's own memory is.
class Stream {
 public:
  explicit Stream(Device& device, size_t bytes = size_t{512} << 20)
      : buffer_(device.allocate(MemorySpace::kDevice, bytes, "stream")) {
    tbb::parallel_for(size_t{0}, blocks(), [&](size_t block) {
      std::fill_n(buffer_.as<uint64_t>() + block * kBlock, kBlock, block);
    });
    read();
  }

  // Bytes per second of one pass.
  double read() {
    std::vector<uint64_t> sums(blocks());
    const auto begin = std::chrono::steady_clock::now();
    tbb::parallel_for(size_t{0}, blocks(), [&](size_t block) {
      const uint64_t* values = buffer_.as<uint64_t>() + block * kBlock;
      uint64_t lanes[32] = {};
      for (size_t i = 0; i < kBlock; i += 32) {
        for (size_t lane = 0; lane < 32; ++lane) lanes[lane] += values[i + lane];
      }
      for (const uint64_t lane : lanes) sums[block] += lane;
    });
    const double seconds = seconds_since(begin);
    benchmark::DoNotOptimize(sums.data());
    return static_cast<double>(blocks() * kBlock * sizeof(uint64_t)) / seconds;
  }

 private:
  static constexpr size_t kBlock = size_t{1} << 15;
  size_t blocks() const { return buffer_.bytes() / (kBlock * sizeof(uint64_t)); }

  Buffer buffer_;
};

}  // namespace fasa::bench
