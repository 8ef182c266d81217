// Checks of tensors that callers pass to the APIs.
#pragma once

#include <fmt/format.h>

#include <cstdint>

#include "runtime/base/error.h"
#include "runtime/base/tensor_view.h"

namespace fasa {

// Throws UsageError with both shapes. Null is allowed if there are no tokens.
inline void require_shape(const char* name, const ConstTensorView& view, int64_t tokens,
                          int64_t heads, int64_t dim) {
  const bool missing = view.data == nullptr && tokens > 0;
  if (!missing && view.tokens == tokens && view.heads == heads && view.dim == dim) return;
  throw UsageError(fmt::format("{} is [{}, {}, {}]{}; expected [{}, {}, {}]", name, view.tokens,
                               view.heads, view.dim, missing ? " and null" : "", tokens, heads,
                               dim));
}

}  // namespace fasa
