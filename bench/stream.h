// The machine's read bandwidth: the floor that all other results are compared with.
#pragma once

#include <algorithm>
#include <chrono>

#include "offload/device.h"
#include "runtime/plan/read_bandwidth.h"

namespace fasa::bench {

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Device memory several times the last-level cache, in huge pages if available, like the runtime's
// own; read from end to end between measurements.
class Stream {
 public:
  explicit Stream(Device& device, size_t bytes = size_t{512} << 20)
      : buffer_(device.allocate(MemorySpace::kDevice, bytes, "stream")) {
    std::fill_n(buffer_.as<uint64_t>(), bytes / sizeof(uint64_t), uint64_t{1});
  }
  // Bytes per second of one pass.
  double read() { return read_once({buffer_.as<uint64_t>(), buffer_.bytes() / sizeof(uint64_t)}); }

 private:
  Buffer buffer_;
};

}  // namespace fasa::bench
