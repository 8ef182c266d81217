// The machine's read bandwidth: the floor that every other figure is held against.
#pragma once

#include <chrono>

#include "runtime/plan/read_bandwidth.h"

namespace fasa::bench {

inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline double stream_bandwidth() { return read_bandwidth(); }

}  // namespace fasa::bench
