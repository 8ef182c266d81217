#include "tools/flags/load_model.h"

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

Model load_model(const std::string& path, Device& device, std::optional<DType> dtype,
                 const WeightOptions& weights, const ContextBound& context) {
  Model model = Model::load(path, device, dtype, weights, context.tokens);
  print_long_rope(model.config(), context.what);
  return model;
}

}  // namespace fasa
