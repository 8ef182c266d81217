// Queries in 16 bits, for the integer products with coded rows.
#pragma once

#include <cstdint>
#include <span>

namespace fasa::cpu {

// Codes of +-32767 for the query's largest element, zeros up to `stride`. Returns what they are
// multiplied by: NaN, and no codes, where an element is not finite.
float code_query(std::span<const float> query, int16_t* codes, int64_t stride);

}  // namespace fasa::cpu
