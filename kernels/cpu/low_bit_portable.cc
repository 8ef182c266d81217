// clang-format off
#include "kernels/cpu/rows/row_vector_portable.h"
// clang-format on
#include "kernels/cpu/rows/row_math_inl.h"
// Over the vectors.
#include "kernels/cpu/low_bit_weights_inl.h"

namespace fasa::cpu {
namespace {

inline Bits load_quad(const unsigned char* codes, int64_t token_bytes) {
  Bits lanes = {};
  for (int t = 0; t < 4; ++t) {
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes[lane] |=
          static_cast<int>(static_cast<unsigned>(codes[t * token_bytes + lane]) << (t * 8));
    }
  }
  return lanes;
}

// Even and odd bytes as 16-bit numbers.
typedef short ByteSums __attribute__((vector_size(kLanes * 4)));
constexpr bool kInPlace = false;
inline ByteSums dot_bytes(ByteSums sum, Bits weights, Bits codes) {
  constexpr int kEven = 0x00ff00ff;
  const Bits odd_weights = (weights >> 8) & kEven;
  const Bits odd_codes = (codes >> 8) & kEven;
  return sum + (ByteSums)(weights & kEven) * (ByteSums)(codes & kEven) +
         (ByteSums)odd_weights * (ByteSums)odd_codes;
}
inline Bits widened(ByteSums sum) { return ((Bits)sum << 16 >> 16) + ((Bits)sum >> 16); }

}  // namespace
}  // namespace fasa::cpu

#include "kernels/cpu/low_bit_page_inl.h"

namespace fasa::cpu {

const LowBitBodies kLowBitPortable = kLowBitBodies;

}  // namespace fasa::cpu
