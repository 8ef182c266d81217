// The option --dtype of commands that load a model.
#pragma once

#include <optional>
#include <string>

#include "runtime/base/dtype.h"

namespace fasa {

// Nothing for "auto". Throws UsageError.
std::optional<DType> weights_dtype(const std::string& name);

}  // namespace fasa
