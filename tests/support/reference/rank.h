// The scalar form of calibration's ranking (cpu/rank_body_types.h defines the functions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fasa::reference {

// base: [tokens] or empty = zeros.
std::vector<float> chunk_scores(const std::vector<float>& base, float first, float second,
                                const float* first_keys, const float* second_keys,
                                std::size_t tokens);
// The largest score without NaN; -infinity if none is left.
float best_score(const std::vector<float>& scores);
// rows: [heads][tokens].
std::vector<int32_t> deficits(const std::vector<std::vector<float>>& rows);

}  // namespace fasa::reference
