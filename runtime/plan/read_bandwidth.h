// Measures this machine's memory read bandwidth, the bound of all work on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fasa {

// One pass of all threads over `values`, in interleaved blocks. Bytes per second.
double read_once(std::span<const uint64_t> values);

// The best of `passes` over `bytes` of fresh memory; `bytes` must exceed the last-level cache.
double read_bandwidth(size_t bytes = size_t{1} << 30, int passes = 7);

}  // namespace fasa
