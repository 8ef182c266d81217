#include "tools/long_rope.h"

#include <fmt/format.h>

#include <cstdio>

namespace fasa {

void print_long_rope(const ModelConfig& config, std::string_view context) {
  const RopeParameters& rope = config.rope;
  if (rope.kind != RopeKind::kLongRope || config.max_positions <= rope.original_positions) return;
  if (rope.long_factors.empty()) {
    fmt::print(stderr,
               "fasa: longrope: the long factors; {} of at most {} tokens takes the short\n",
               context, rope.original_positions);
  } else {
    fmt::print(stderr, "fasa: longrope: the short factors, as contexts end within {} tokens\n",
               rope.original_positions);
  }
}

}  // namespace fasa
