// Queries as 16-bit codes, for integer products with coded rows.
#pragma once

#include <cstdint>
#include <span>

namespace fasa::cpu {

// Writes codes, +-32767 for the query's largest element, and zeros up to `stride`. Returns their
// scale; NaN, without codes, if an element is not finite.
float code_query(std::span<const float> query, int16_t* codes, int64_t stride);

}  // namespace fasa::cpu
