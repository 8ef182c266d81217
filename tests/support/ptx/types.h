// Types of PTX, and those of C++ that hold their values.
#pragma once

#include <optional>
#include <string_view>
#include <type_traits>

#include "tests/support/ptx/convert.h"
#include "tests/support/ptx/entry.h"

namespace fasa::ptx {

enum class Type : uint8_t {
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kF16x2,
  kBF16x2,
};

std::optional<Type> type_of(std::string_view name);
int bytes_of(Type type);  // 0: a predicate

template <typename T>
struct Integer : std::is_integral<T> {};
template <typename T>
struct Number : std::is_arithmetic<T> {};

// f with a value of the type, or null if `kAllowed` excludes it.
template <template <typename> typename kAllowed, typename F>
Run with_type(Type type, const F& f) {
  const auto one = [&f](auto value) -> Run {
    if constexpr (kAllowed<decltype(value)>::value)
      return f(value);
    else
      return nullptr;
  };
  switch (type) {
    case Type::kPred:
      return nullptr;
    case Type::kB8:
    case Type::kU8:
      return one(uint8_t{});
    case Type::kS8:
      return one(int8_t{});
    case Type::kB16:
    case Type::kU16:
      return one(uint16_t{});
    case Type::kS16:
      return one(int16_t{});
    case Type::kS32:
      return one(int32_t{});
    case Type::kB64:
    case Type::kU64:
      return one(uint64_t{});
    case Type::kS64:
      return one(int64_t{});
    case Type::kF16:
      return one(F16{});
    case Type::kBF16:
      return one(BF16{});
    case Type::kF32:
      return one(float{});
    case Type::kF64:
      return one(double{});
    default:
      return one(uint32_t{});
  }
}

template <typename>
struct Any : std::true_type {};

}  // namespace fasa::ptx
