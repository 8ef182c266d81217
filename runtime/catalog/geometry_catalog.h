// Models by name, for plans and measurements without a model's files.
#pragma once

#include <span>
#include <string_view>

#include "runtime/catalog/model_shape.h"

namespace fasa {

std::span<const ModelShape> model_shapes();

// Ignores case, blanks, dashes and underscores. Throws UsageError with the nearest names.
const ModelShape& find_model_shape(std::string_view name);

}  // namespace fasa
