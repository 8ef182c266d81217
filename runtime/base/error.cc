#include "runtime/base/error.h"

#include <fmt/format.h>

#include "runtime/base/units.h"

namespace fasa {

BudgetError::BudgetError(std::string limit, uint64_t asked, uint64_t used, uint64_t capacity,
                         const std::string& purpose)
    : Error(
          ErrorKind::kBudget,
          fmt::format(
              "{} is too small for {} ({}): {} of {} are in use; raise --{} or shorten the context",
              limit, purpose, format_bytes(asked), format_bytes(used), format_bytes(capacity),
              dashed(limit))),
      limit_(std::move(limit)),
      asked_(asked),
      capacity_(capacity) {}

}  // namespace fasa
