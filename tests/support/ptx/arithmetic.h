// What arithmetic instructions compute, for one lane. Integers wrap around; floats are rounded to
// nearest unless the name says otherwise. Approximations are computed exactly.
#pragma once

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace fasa::ptx {

template <typename T>
using Unsigned = std::make_unsigned_t<T>;

struct Add {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(Unsigned<T>(a) + Unsigned<T>(b));
    return a + b;
  }
};
struct Sub {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(Unsigned<T>(a) - Unsigned<T>(b));
    return a - b;
  }
};
struct Mul {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    }
    return a * b;
  }
};
struct MulHigh {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>((static_cast<__int128>(a) * static_cast<__int128>(b)) >> (8 * sizeof(T)));
  }
};
template <typename Wide>
struct MulWide {
  template <typename T>
  Wide operator()(T a, T b) const {
    return static_cast<Wide>(a) * static_cast<Wide>(b);
  }
  template <typename T>
  Wide operator()(T a, T b, Wide c) const {
    return Add()((*this)(a, b), c);
  }
};
struct MulAdd {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return Add()(Mul()(a, b), c);
  }
};
struct Divide {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) return 0;  // refused before
      if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(0 - Unsigned<T>(a));
    }
    return static_cast<T>(a / b);
  }
};
struct Remainder {
  template <typename T>
  T operator()(T a, T b) const {
    const bool zero = b == 0 || (std::is_signed_v<T> && b == static_cast<T>(-1));
    return zero ? T{0} : static_cast<T>(a % b);
  }
};
struct And {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <typename T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
};
struct Same {
  template <typename T>
  T operator()(T a) const {
    return a;
  }
};
struct Neg {
  template <typename T>
  T operator()(T a) const {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(0 - Unsigned<T>(a));
    return -a;
  }
};
struct Abs {
  template <typename T>
  T operator()(T a) const {
    if constexpr (std::is_integral_v<T>) return a < 0 ? Neg()(a) : a;
    return std::fabs(a);
  }
};
// NaN loses against a number; -0 is less than 0.
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (a == b) return std::signbit(a) ? a : b;
      if (a != a) return b;
      if (b != b) return a;
    }
    return b < a ? b : a;
  }
};
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (a == b) return std::signbit(a) ? b : a;
      if (a != a) return b;
      if (b != b) return a;
    }
    return a < b ? b : a;
  }
};
struct CopySign {
  template <typename T>
  T operator()(T sign, T size) const {
    return std::copysign(size, sign);
  }
};
struct Fused {
  template <typename T>
  T operator()(T a, T b, T c) const {
    return std::fma(a, b, c);
  }
};
struct SquareRoot {
  template <typename T>
  T operator()(T a) const {
    return std::sqrt(a);
  }
};
struct Reciprocal {
  template <typename T>
  T operator()(T a) const {
    return T{1} / a;
  }
};

// Keeps the compiler from moving a computation out of another rounding mode.
inline float opaque(float x) {
  asm volatile("" : "+x"(x));
  return x;
}
template <int kMode, typename F>
float rounded(const F& f) {
  std::fesetround(kMode);
  const float result = opaque(f());
  std::fesetround(FE_TONEAREST);
  return result;
}
struct AddToZero {
  float operator()(float a, float b) const {
    return rounded<FE_TOWARDZERO>([&] { return opaque(a) + opaque(b); });
  }
};
struct FusedDown {
  float operator()(float a, float b, float c) const {
    return rounded<FE_DOWNWARD>([&] { return std::fma(opaque(a), opaque(b), opaque(c)); });
  }
};

inline float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
struct Exp2Flushed {
  float operator()(float a) const { return flushed(std::exp2(flushed(a))); }
};
struct ReciprocalFlushed {
  float operator()(float a) const { return flushed(1.0f / flushed(a)); }
};

struct CountOnes {
  template <typename T>
  uint32_t operator()(T a) const {
    return static_cast<uint32_t>(std::popcount(a));
  }
};
struct ReverseBits {
  uint32_t operator()(uint32_t a) const {
    uint32_t reversed = 0;
    for (int bit = 0; bit < 32; ++bit) reversed |= (a >> bit & 1) << (31 - bit);
    return reversed;
  }
};
struct FindShift {
  uint32_t operator()(uint32_t a) const {
    return a == 0 ? ~0u : static_cast<uint32_t>(std::countl_zero(a));
  }
};
// Four bytes of the eight of b:a, each chosen by four bits; the highest replicates the sign.
struct Permute {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t selectors) const {
    const uint64_t all = uint64_t{b} << 32 | a;
    uint32_t result = 0;
    for (int at = 0; at < 4; ++at) {
      const uint32_t selector = selectors >> 4 * at & 15;
      uint32_t byte = static_cast<uint32_t>(all >> 8 * (selector & 7)) & 255;
      if ((selector & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
      result |= byte << 8 * at;
    }
    return result;
  }
};
struct ShiftLeft {
  template <typename T>
  T operator()(T a, uint32_t bits) const {
    return bits >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << bits);
  }
};
struct ShiftRight {
  template <typename T>
  T operator()(T a, uint32_t bits) const {
    constexpr uint32_t kBits = 8 * sizeof(T);
    if constexpr (std::is_signed_v<T>)
      return static_cast<T>(a >> (bits < kBits ? bits : kBits - 1));
    return bits < kBits ? static_cast<T>(a >> bits) : T{0};
  }
};
// Half of {high, low} shifted by the low five bits of `bits`.
struct FunnelLeft {
  uint32_t operator()(uint32_t low, uint32_t high, uint32_t bits) const {
    return static_cast<uint32_t>((uint64_t{high} << 32 | low) << bits % 32 >> 32);
  }
};
struct FunnelRight {
  uint32_t operator()(uint32_t low, uint32_t high, uint32_t bits) const {
    return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> bits % 32);
  }
};
// The low `length` bits of a replace those of b from `at` on.
struct InsertBits {
  template <typename T>
  T operator()(T a, T b, uint32_t at, uint32_t length) const {
    for (uint32_t bit = 0; bit < (length & 255) && (at & 255) + bit < 8 * sizeof(T); ++bit) {
      const T mask = T{1} << ((at & 255) + bit);
      b = (a >> bit & 1) != 0 ? b | mask : b & ~mask;
    }
    return b;
  }
};

// `length` bits of a from `at` on; the rest is the highest of them if the type is signed, else 0.
struct ExtractBits {
  template <typename T>
  T operator()(T a, uint32_t at, uint32_t length) const {
    constexpr uint32_t kBits = 8 * sizeof(T);
    at &= 255, length &= 255;
    Unsigned<T> result = 0;
    for (uint32_t bit = 0; bit < kBits && length > 0; ++bit) {
      const bool inside = bit < length && at + bit < kBits;
      if (!inside && !std::is_signed_v<T>) break;
      const uint32_t last = at + length - 1 < kBits ? at + length - 1 : kBits - 1;
      result |= (static_cast<Unsigned<T>>(a) >> (inside ? at + bit : last) & 1) << bit;
    }
    return static_cast<T>(result);
  }
};

// Comparisons: false with NaN; those with "or unordered" true.
enum class Compare : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe };
template <Compare kCompare, bool kUnordered>
struct Compared {
  template <typename T>
  bool operator()(T a, T b) const {
    if (a != a || b != b) return kUnordered;
    switch (kCompare) {
      case Compare::kEq:
        return a == b;
      case Compare::kNe:
        return a != b;
      case Compare::kLt:
        return a < b;
      case Compare::kLe:
        return a <= b;
      case Compare::kGt:
        return a > b;
      default:
        return a >= b;
    }
  }
};
struct BothNumbers {
  template <typename T>
  bool operator()(T a, T b) const {
    return a == a && b == b;
  }
};
struct EitherNaN {
  template <typename T>
  bool operator()(T a, T b) const {
    return a != a || b != b;
  }
};

}  // namespace fasa::ptx
