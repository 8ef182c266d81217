#include "kernels/cpu/select/query_codes.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/slice_codec.h"

namespace fasa::cpu {

float code_query(std::span<const float> query, int16_t* codes, int64_t stride) {
  constexpr float kMax = 32767;
  constexpr uint32_t kInfinite = 0x7f800000u;
  uint32_t largest = 0;
  for (const float element : query) {
    largest = std::max(largest, std::bit_cast<uint32_t>(element) & 0x7fffffffu);
  }
  std::fill(codes, codes + stride, int16_t{0});
  if (largest >= kInfinite) return std::numeric_limits<float>::quiet_NaN();
  const float scale =
      std::max(std::bit_cast<float>(largest) / kMax, std::numeric_limits<float>::min());
  const float inverse = 1 / scale;
  for (size_t d = 0; d < query.size(); ++d) {
    codes[d] = static_cast<int16_t>(round_code(query[d] * inverse));
  }
  return scale;
}

}  // namespace fasa::cpu
