// Checks what a user gave.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "runtime/base/error.h"

namespace fasa {

// Throws UsageError "OPTION = GIVEN: allowed: ALLOWED" unless `ok`.
void require(bool ok, std::string_view option, const auto& given, std::string_view allowed) {
  if (!ok) throw UsageError(fmt::format("{} = {}: allowed: {}", option, given, allowed));
}

}  // namespace fasa
