// Moves, conversions, comparisons and choices.
#include <algorithm>
#include <array>

#include "tests/support/ptx/decoder.h"
#include "tests/support/ptx/map_lanes.h"

namespace fasa::ptx {
namespace {

void move_predicate(Warp& warp, const Instruction& in, uint32_t lanes) {
  uint32_t& result = warp.predicate(in.slot[0]);
  result = (result & ~lanes) | (warp.predicate(in.slot[1]) & lanes);
  warp.define(in.slot[0], lanes, warp.defined(in.slot[1]));
}

// d = {a, b, ...}
void pack(Warp& warp, const Instruction& in, uint32_t lanes) {
  std::array<uint32_t, 4> known{};
  for (int k = 0; k < in.count; ++k) known[static_cast<size_t>(k)] = warp.defined(in.slot[1 + k]);
  for_lanes(lanes, [&](int lane) {
    uint64_t whole = 0;
    for (int k = 0; k < in.count; ++k) {
      uint64_t element = warp.get<uint64_t>(in, 1 + k, lane);
      if (in.bytes < 8) element &= (uint64_t{1} << 8 * in.bytes) - 1;
      whole |= element << 8 * in.bytes * k;
    }
    warp.put<uint64_t>(in, 0, lane, whole);
  });
  warp.define_parts(in.slot[0], lanes, {known.data(), in.count});
}

// {a, b, ...} = d
void unpack(Warp& warp, const Instruction& in, uint32_t lanes) {
  std::array<uint32_t, 4> known{};
  for (int k = 0; k < in.count; ++k) {
    known[static_cast<size_t>(k)] = warp.defined_part(in.slot[in.count], k);
  }
  for_lanes(lanes, [&](int lane) {
    const auto whole = warp.get<uint64_t>(in, in.count, lane);
    for (int k = 0; k < in.count; ++k) {
      warp.put<uint64_t>(in, k, lane, whole >> 8 * in.bytes * k);
    }
  });
  for (int k = 0; k < in.count; ++k) {
    warp.define(in.slot[k], lanes, known[static_cast<size_t>(k)]);
  }
}

void bind_move(Statement& statement) {
  statement.allow({statement.parts.back()});
  statement.expect_arguments(2);
  Instruction& in = statement.in;
  const auto& arguments = statement.arguments;
  const int width = statement.width();
  const bool packs = arguments[1].starts_with('{');
  if (!packs && !arguments[0].starts_with('{')) {
    statement.add_all(width);
    in.run = statement.type == Type::kPred ? move_predicate
             : width == 2                  ? map_lanes<Same, uint16_t, uint16_t>
             : width == 4                  ? map_lanes<Same, uint32_t, uint32_t>
             : width == 8                  ? map_lanes<Same, uint64_t, uint64_t>
                                           : nullptr;
    return;
  }
  const std::string_view vector = arguments[packs ? 1 : 0];
  const auto count = static_cast<int>(split(vector.substr(1, vector.size() - 2), ',').size());
  statement.decoder.add_elements(in, arguments[0], packs ? width : width / count);
  statement.decoder.add_elements(in, arguments[1], packs ? width / count : width);
  in.count = static_cast<uint8_t>(count);
  in.results = packs ? 1 : in.count;
  in.bytes = static_cast<uint8_t>(width / count);
  in.run = packs ? pack : unpack;
}

template <typename To, typename From>
void convert(Warp& warp, const Instruction& in, uint32_t lanes) {
  for_lanes(lanes, [&](int lane) {
    warp.put<To>(in, 0, lane, converted<To, From>(warp.get<From>(in, 1, lane), in));
  });
  warp.define(in.slot[0], lanes, warp.defined(in.slot[1]));
}
// The first operand becomes the upper half.
template <typename Half>
struct Pair {
  uint32_t operator()(float upper, float lower) const {
    return uint32_t{half_of<Half>(upper).bits} << 16 | half_of<Half>(lower).bits;
  }
};

constexpr std::array<std::pair<std::string_view, Rounding>, 8> kRoundings{
    {{"rn", Rounding::kNearest},
     {"rni", Rounding::kNearest},
     {"rz", Rounding::kZero},
     {"rzi", Rounding::kZero},
     {"rm", Rounding::kDown},
     {"rmi", Rounding::kDown},
     {"rp", Rounding::kUp},
     {"rpi", Rounding::kUp}}};

void bind_conversion(Statement& statement) {
  Instruction& in = statement.in;
  const size_t count = statement.parts.size();
  const auto to = count < 3 ? std::nullopt : type_of(statement.parts[count - 2]);
  if (!to || !statement.type) statement.decoder.fail("two types are needed", statement.opcode);
  for (size_t i = 1; i + 2 < count; ++i) {
    const std::string_view modifier = statement.parts[i];
    const auto* const rounding =
        std::ranges::find(kRoundings, modifier, &decltype(kRoundings)::value_type::first);
    if (rounding != kRoundings.end()) {
      in.rounding = rounding->second;
    } else if (modifier == "ftz") {
      in.flushes = true;
    } else if (modifier == "sat") {
      in.saturates = true;
    } else {
      statement.decoder.fail("unknown modifier", statement.opcode);
    }
  }
  if (to == Type::kF16x2 || to == Type::kBF16x2) {
    statement.expect_arguments(3);
    statement.add_all(4);
    in.run = to == Type::kF16x2 ? map_lanes<Pair<F16>, uint32_t, float, float>
                                : map_lanes<Pair<BF16>, uint32_t, float, float>;
    return;
  }
  statement.expect_arguments(2);
  statement.decoder.add_operand(in, statement.arguments[0], bytes_of(*to));
  statement.decoder.add_operand(in, statement.arguments[1], statement.width());
  in.run = with_type<Any>(*to, [&](auto result) -> Run {
    return with_type<Any>(*statement.type, [](auto value) -> Run {
      return convert<decltype(result), decltype(value)>;
    });
  });
}

template <typename T, typename F>
void compare(Warp& warp, const Instruction& in, uint32_t lanes) {
  const T* const a = warp.at<T>(in.slot[1]);
  const T* const b = warp.at<T>(in.slot[2]);
  uint32_t value = 0;
  for (int lane = 0; lane < kLanes; ++lane) value |= uint32_t{F()(a[lane], b[lane])} << lane;
  const uint32_t known = warp.defined(in.slot[1]) & warp.defined(in.slot[2]);
  uint32_t& result = warp.predicate(in.slot[0]);
  result = (result & ~lanes) | (value & lanes);
  warp.define(in.slot[0], lanes, known);
}
template <typename F>
Run comparison(Type type) {
  return with_type<Number>(type, [](auto x) -> Run { return compare<decltype(x), F>; });
}
using enum Compare;
struct Comparison {
  std::string_view name;
  Run (*bind)(Type type);
};
constexpr std::array kComparisons{
    Comparison{"eq", comparison<Compared<kEq, false>>},
    Comparison{"ne", comparison<Compared<kNe, false>>},
    Comparison{"lt", comparison<Compared<kLt, false>>},
    Comparison{"le", comparison<Compared<kLe, false>>},
    Comparison{"gt", comparison<Compared<kGt, false>>},
    Comparison{"ge", comparison<Compared<kGe, false>>},
    Comparison{"equ", comparison<Compared<kEq, true>>},
    Comparison{"neu", comparison<Compared<kNe, true>>},
    Comparison{"ltu", comparison<Compared<kLt, true>>},
    Comparison{"leu", comparison<Compared<kLe, true>>},
    Comparison{"gtu", comparison<Compared<kGt, true>>},
    Comparison{"geu", comparison<Compared<kGe, true>>},
    Comparison{"num", comparison<BothNumbers>},
    Comparison{"nan", comparison<EitherNaN>},
};

void bind_comparison(Statement& statement) {
  statement.expect_arguments(3);
  const auto* const found =
      std::ranges::find(kComparisons, statement.parts.at(1), &Comparison::name);
  if (found == kComparisons.end() || statement.parts.size() != 3 || !statement.type) {
    statement.decoder.fail("unknown comparison", statement.opcode);
  }
  statement.decoder.add_operand(statement.in, statement.arguments[0], 0);
  for (size_t i = 1; i < 3; ++i) {
    statement.decoder.add_operand(statement.in, statement.arguments[i], statement.width());
  }
  statement.in.run = found->bind(*statement.type);
}

// Defined where the chosen operand is.
template <typename T>
void choose(Warp& warp, const Instruction& in, uint32_t lanes) {
  T* const result = warp.at<T>(in.slot[0]);
  const T* const a = warp.at<T>(in.slot[1]);
  const T* const b = warp.at<T>(in.slot[2]);
  const uint32_t first = warp.predicate(in.slot[3]);
  const uint32_t known =
      ((first & warp.defined(in.slot[1])) | (~first & warp.defined(in.slot[2]))) &
      warp.defined(in.slot[3]);
  for_lanes(lanes, [&](int lane) { result[lane] = (first >> lane & 1) != 0 ? a[lane] : b[lane]; });
  warp.define(in.slot[0], lanes, known);
}

void bind_choice(Statement& statement) {
  statement.allow({statement.parts.back()});
  statement.expect_arguments(4);
  const int width = statement.width();
  for (size_t i = 0; i < 4; ++i) {
    statement.decoder.add_operand(statement.in, statement.arguments[i], i == 3 ? 0 : width);
  }
  statement.in.run = width == 2   ? choose<uint16_t>
                     : width == 4 ? choose<uint32_t>
                     : width == 8 ? choose<uint64_t>
                                  : nullptr;
}

}  // namespace

bool bind_moves(Statement& statement) {
  if (!statement.type) return false;
  if (statement.is("mov")) {
    bind_move(statement);
  } else if (statement.is("cvt")) {
    bind_conversion(statement);
  } else if (statement.is("setp")) {
    bind_comparison(statement);
  } else if (statement.is("selp")) {
    bind_choice(statement);
  } else {
    return false;
  }
  return true;
}

}  // namespace fasa::ptx
