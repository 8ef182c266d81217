// Arithmetic and logic: one table. A modifier that no row names is unknown.
#include <algorithm>
#include <array>

#include "tests/support/ptx/arithmetic.h"
#include "tests/support/ptx/decoder.h"
#include "tests/support/ptx/map_lanes.h"

namespace fasa::ptx {
namespace {

template <typename T>
struct Bits : std::bool_constant<std::is_integral_v<T> && std::is_unsigned_v<T>> {};
template <typename T>
struct Word : std::is_same<T, uint32_t> {};
template <typename T>
struct Float : std::is_floating_point<T> {};
template <typename T>
struct Single : std::is_same<T, float> {};
template <typename T>
struct Signed : std::bool_constant<std::is_arithmetic_v<T> && std::is_signed_v<T>> {};

// An instruction whose operands all have its type.
template <template <typename> typename kAllowed, typename F, int kOperands>
Run of_one_type(Type type) {
  return with_type<kAllowed>(type, [](auto x) -> Run {
    using T = decltype(x);
    if constexpr (kOperands == 1) return map_lanes<F, T, T>;
    if constexpr (kOperands == 2) return map_lanes<F, T, T, T>;
    if constexpr (kOperands == 3) return map_lanes<F, T, T, T, T>;
  });
}
template <template <typename> typename kAllowed, typename F>
constexpr auto kUnary = of_one_type<kAllowed, F, 1>;
template <template <typename> typename kAllowed, typename F>
constexpr auto kBinary = of_one_type<kAllowed, F, 2>;
template <template <typename> typename kAllowed, typename F>
constexpr auto kTernary = of_one_type<kAllowed, F, 3>;

template <typename F>
Run divided(Type type) {
  return with_type<Integer>(type, [](auto x) -> Run {
    using T = decltype(x);
    return [](Warp& warp, const Instruction& in, uint32_t lanes) {
      for_lanes(lanes, [&](int lane) {
        if (warp.at<T>(in.slot[2])[lane] == 0) warp.fail("division by zero", lane);
      });
      map_lanes<F, T, T, T>(warp, in, lanes);
    };
  });
}
template <typename F>
Run shifted(Type type) {
  return with_type<Integer>(type, [](auto x) -> Run {
    using T = decltype(x);
    return map_lanes<F, T, T, uint32_t>;
  });
}
Run counted(Type type) {
  return with_type<Bits>(type,
                         [](auto x) -> Run { return map_lanes<CountOnes, uint32_t, decltype(x)>; });
}
Run inserted(Type type) {
  return with_type<Bits>(type, [](auto x) -> Run {
    using T = decltype(x);
    return map_lanes<InsertBits, T, T, T, uint32_t, uint32_t>;
  });
}

Run extracted(Type type) {
  return with_type<Integer>(type, [](auto x) -> Run {
    using T = decltype(x);
    return map_lanes<ExtractBits, T, T, uint32_t, uint32_t>;
  });
}

struct FusedPairs {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    uint32_t d = 0;
    for (int half = 0; half < 32; half += 16) {
      const auto of = [half](uint32_t pair) {
        return f32_of(BF16{static_cast<uint16_t>(pair >> half)});
      };
      d |= uint32_t{bf16_of(std::fma(of(a), of(b), of(c))).bits} << half;
    }
    return d;
  }
};
Run fused(Type type) {
  if (type == Type::kBF16x2) return map_lanes<FusedPairs, uint32_t, uint32_t, uint32_t, uint32_t>;
  return kTernary<Float, Fused>(type);
}

template <typename T>
using TwiceAsWide =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                       std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
template <typename T>
struct Narrow : std::bool_constant<std::is_integral_v<T> && (sizeof(T) == 2 || sizeof(T) == 4)> {};
Run widened(Type type) {
  return with_type<Narrow>(type, [](auto x) -> Run {
    using T = decltype(x);
    using Wide = TwiceAsWide<T>;
    return map_lanes<MulWide<Wide>, Wide, T, T>;
  });
}
Run widened_sum(Type type) {
  return with_type<Narrow>(type, [](auto x) -> Run {
    using T = decltype(x);
    using Wide = TwiceAsWide<T>;
    return map_lanes<MulWide<Wide>, Wide, T, T, Wide>;
  });
}

template <typename F>
void predicate(Warp& warp, const Instruction& in, uint32_t lanes) {
  uint32_t value = 0;
  uint32_t known = warp.defined(in.slot[1]);
  if constexpr (std::is_same_v<F, Not>) {
    value = ~warp.predicate(in.slot[1]);
  } else {
    value = F()(warp.predicate(in.slot[1]), warp.predicate(in.slot[2]));
    known &= warp.defined(in.slot[2]);
  }
  uint32_t& result = warp.predicate(in.slot[0]);
  result = (result & ~lanes) | (value & lanes);
  warp.define(in.slot[0], lanes, known);
}
template <typename F>
Run logic(Type type) {
  if (type == Type::kPred) return predicate<F>;
  return of_one_type < Bits, F, std::is_same_v<F, Not> ? 1 : 2 > (type);
}

// Widths of operands, in units of the type's: of the result, the others, and those from the
// `words`-th on, which are words.
struct Row {
  std::string_view stem;
  Run (*bind)(Type type);
  size_t operands;  // with the result
  int result = 1;   // 0: a word
  size_t words = 9;
  bool wide_sum = false;  // the last operand is as wide as the result
};
constexpr std::array kRows{
    Row{"add", kBinary<Integer, Add>, 3},
    Row{"add.rn", kBinary<Float, Add>, 3},
    Row{"add.rz", kBinary<Single, AddToZero>, 3},
    Row{"sub", kBinary<Integer, Sub>, 3},
    Row{"sub.rn", kBinary<Float, Sub>, 3},
    Row{"mul.lo", kBinary<Integer, Mul>, 3},
    Row{"mul.hi", kBinary<Integer, MulHigh>, 3},
    Row{"mul.rn", kBinary<Float, Mul>, 3},
    Row{"mul.wide", widened, 3, 2},
    Row{"mad.lo", kTernary<Integer, MulAdd>, 4},
    Row{"mad.wide", widened_sum, 4, 2, 9, true},
    Row{"fma.rn", fused, 4},
    Row{"fma.rm", kTernary<Single, FusedDown>, 4},
    Row{"div", divided<Divide>, 3},
    Row{"div.rn", kBinary<Float, Divide>, 3},
    Row{"rem", divided<Remainder>, 3},
    Row{"min", kBinary<Number, Min>, 3},
    Row{"max", kBinary<Number, Max>, 3},
    Row{"abs", kUnary<Signed, Abs>, 2},
    Row{"neg", kUnary<Signed, Neg>, 2},
    Row{"copysign", kBinary<Float, CopySign>, 3},
    Row{"sqrt.rn", kUnary<Float, SquareRoot>, 2},
    Row{"rcp.rn", kUnary<Float, Reciprocal>, 2},
    Row{"rcp.approx.ftz", kUnary<Single, ReciprocalFlushed>, 2},
    Row{"ex2.approx.ftz", kUnary<Single, Exp2Flushed>, 2},
    Row{"and", logic<And>, 3},
    Row{"or", logic<Or>, 3},
    Row{"xor", logic<Xor>, 3},
    Row{"not", logic<Not>, 2},
    Row{"shl", shifted<ShiftLeft>, 3, 1, 2},
    Row{"shr", shifted<ShiftRight>, 3, 1, 2},
    Row{"shf.l.wrap", kTernary<Word, FunnelLeft>, 4},
    Row{"shf.r.wrap", kTernary<Word, FunnelRight>, 4},
    Row{"bfi", inserted, 5, 1, 3},
    Row{"bfe", extracted, 4, 1, 2},
    Row{"popc", counted, 2, 0},
    Row{"brev", kUnary<Word, ReverseBits>, 2},
    Row{"bfind.shiftamt", kUnary<Word, FindShift>, 2},
    Row{"prmt", kTernary<Word, Permute>, 4},
};

}  // namespace

bool bind_arithmetic(Statement& statement) {
  const auto* const row = std::ranges::find(kRows, statement.stem, &Row::stem);
  if (row == kRows.end() || !statement.type) return false;
  statement.expect_arguments(row->operands);
  const int width = statement.width();
  const int result = row->result == 0 ? 4 : width * row->result;
  for (size_t i = 0; i < row->operands; ++i) {
    const bool sum = row->wide_sum && i + 1 == row->operands;
    statement.decoder.add_operand(statement.in, statement.arguments[i],
                                  i == 0 || sum     ? result
                                  : i >= row->words ? 4
                                                    : width);
  }
  statement.in.run = row->bind(*statement.type);
  return true;
}

}  // namespace fasa::ptx
