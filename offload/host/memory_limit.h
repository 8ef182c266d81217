// Counts bytes against a user's limit.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "offload/device.h"

namespace fasa {

// Thread-safe.
class MemoryLimit {
 public:
  // `name`: the option (device_memory, host_memory, pinned_memory).
  MemoryLimit(std::string name, std::optional<uint64_t> limit_bytes);

  // Throws BudgetError if the limit would be exceeded; then nothing is counted.
  void take(uint64_t bytes, std::string_view purpose);
  void give(uint64_t bytes) noexcept;
  MemoryUse use() const;
  const std::string& name() const { return name_; }

 private:
  const std::string name_;
  mutable std::mutex mutex_;
  MemoryUse use_;
};

}  // namespace fasa
