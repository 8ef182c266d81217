// What this machine's memory gives.
#pragma once

#include <cstddef>

namespace fasa {

// Bytes per second that all threads together read from a buffer larger than the last-level cache;
// the best of several passes. Takes the buffer's time to be filled, and holds it meanwhile.
double read_bandwidth(size_t bytes = size_t{1} << 30, int passes = 7);

}  // namespace fasa
