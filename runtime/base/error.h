// The library's errors: one small hierarchy, thrown for misuse, bad input, exhausted memory and
// device failure. Expected outcomes (hit, miss, full) are plain return values instead.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace fasa {

// The process exit codes of the `fasa` command; bindings map the same kinds to status codes.
enum class ErrorKind { kUsage = 2, kInput = 3, kBudget = 4, kDevice = 5 };

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// A call, flag or config is invalid. The message says what was given and what is allowed.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ErrorKind::kUsage, message) {}
};

// An invalid model, map or text file. Names the file and the position in it.
class InputError : public Error {
 public:
  explicit InputError(const std::string& message) : Error(ErrorKind::kInput, message) {}
};

// A memory limit that is too low. Names the limit, the bytes asked for and the bytes available.
class BudgetError : public Error {
 public:
  // `limit`: the option's name (device_memory, host_memory, pinned_memory); sizes in bytes.
  BudgetError(std::string limit, uint64_t asked, uint64_t used, uint64_t capacity,
              const std::string& purpose);
  const std::string& limit() const { return limit_; }
  uint64_t asked_bytes() const { return asked_; }
  uint64_t capacity_bytes() const { return capacity_; }

 private:
  std::string limit_;
  uint64_t asked_;
  uint64_t capacity_;
};

// An operation that failed on a device. Names the operation.
class DeviceError : public Error {
 public:
  explicit DeviceError(const std::string& message) : Error(ErrorKind::kDevice, message) {}
};

}  // namespace fasa
