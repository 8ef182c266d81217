#include "tests/support/ptx/types.h"

#include <algorithm>
#include <array>

namespace fasa::ptx {
namespace {

struct Named {
  std::string_view name;
  Type type;
  int bytes;
};
constexpr std::array<Named, 19> kTypes{{{"pred", Type::kPred, 0},
                                        {"b8", Type::kB8, 1},
                                        {"b16", Type::kB16, 2},
                                        {"b32", Type::kB32, 4},
                                        {"b64", Type::kB64, 8},
                                        {"u8", Type::kU8, 1},
                                        {"u16", Type::kU16, 2},
                                        {"u32", Type::kU32, 4},
                                        {"u64", Type::kU64, 8},
                                        {"s8", Type::kS8, 1},
                                        {"s16", Type::kS16, 2},
                                        {"s32", Type::kS32, 4},
                                        {"s64", Type::kS64, 8},
                                        {"f16", Type::kF16, 2},
                                        {"bf16", Type::kBF16, 2},
                                        {"f32", Type::kF32, 4},
                                        {"f64", Type::kF64, 8},
                                        {"f16x2", Type::kF16x2, 4},
                                        {"bf16x2", Type::kBF16x2, 4}}};

}  // namespace

std::optional<Type> type_of(std::string_view name) {
  const auto* const found = std::ranges::find(kTypes, name, &Named::name);
  return found == kTypes.end() ? std::nullopt : std::optional(found->type);
}

int bytes_of(Type type) { return std::ranges::find(kTypes, type, &Named::type)->bytes; }

}  // namespace fasa::ptx
