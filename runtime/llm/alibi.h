// ALiBi (arXiv 2108.12409): attention falls off linearly with the distance, by a slope per query
// head.
#pragma once

#include <cstdint>
#include <vector>

namespace fasa {

// Where the number of heads is no power of two: the slopes of the power below it, then every other
// one of the power above (bloom); or those of the power above, odd places before even ones, as far
// as there are heads (mpt).
enum class AlibiOrder : uint8_t { kExtrasLast, kInterleaved };

// Slopes [heads]; for n = 2^k heads: 2^(-most/n), 2^(-2 most/n), ..., 2^-most.
std::vector<float> alibi_slopes(int heads, AlibiOrder order, double most);

}  // namespace fasa
