// ALiBi (arXiv 2108.12409): scores fall linearly with distance, with one slope per query head.
#pragma once

#include <cstdint>
#include <vector>

namespace fasa {

// Slopes where the number of heads is not a power of two. kExtrasLast (bloom): those of the next
// lower power, then every other one of the next higher power. kInterleaved (mpt): those of the next
// higher power, odd positions before even ones, cut to the number of heads.
enum class AlibiOrder : uint8_t { kExtrasLast, kInterleaved };

// Slopes [heads]; for n = 2^k heads: 2^(-most/n), 2^(-2 most/n), ..., 2^-most.
std::vector<float> alibi_slopes(int heads, AlibiOrder order, double most);

}  // namespace fasa
