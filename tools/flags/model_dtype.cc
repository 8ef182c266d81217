#include "tools/flags/model_dtype.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace fasa {

std::optional<DType> weights_dtype(const std::string& name) {
  if (name == "auto") return std::nullopt;
  const auto dtype = parse_dtype(name);
  if (!dtype || *dtype == DType::kF16) {
    throw UsageError(fmt::format("--dtype = \"{}\": allowed: f32, bf16, auto", name));
  }
  return dtype;
}

}  // namespace fasa
