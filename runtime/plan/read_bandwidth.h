// How fast this machine's cores read memory: the floor of everything that the CPU serves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fasa {

// One pass of all threads over `values`, blocks by turns. Bytes per second.
double read_once(std::span<const uint64_t> values);

// The best of `passes` over `bytes` of fresh memory; more than the last-level cache holds.
double read_bandwidth(size_t bytes = size_t{1} << 30, int passes = 7);

}  // namespace fasa
