#include "offload/host/memory_limit.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/base/error.h"

namespace fasa {

MemoryLimit::MemoryLimit(std::string name, std::optional<uint64_t> limit_bytes)
    : name_(std::move(name)) {
  use_.limit_bytes = limit_bytes.value_or(std::numeric_limits<uint64_t>::max());
}

void MemoryLimit::take(uint64_t bytes, std::string_view purpose) {
  const std::lock_guard lock(mutex_);
  if (bytes > use_.limit_bytes - use_.used_bytes) {
    throw BudgetError(name_, bytes, use_.used_bytes, use_.limit_bytes, std::string(purpose));
  }
  use_.used_bytes += bytes;
  use_.peak_bytes = std::max(use_.peak_bytes, use_.used_bytes);
}

void MemoryLimit::give(uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  use_.used_bytes -= bytes;
}

MemoryUse MemoryLimit::use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

}  // namespace fasa
