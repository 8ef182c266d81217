/// \file
/// What calls throw, and who owns the library's handles.
#ifndef FASA_ERRORS_HPP
#define FASA_ERRORS_HPP

#include <fasa/fasa.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace fasa {
inline namespace v0 {

/// What a call that failed throws; what() is the library's own text. Nothing has changed then.
class Error : public std::runtime_error {
 public:
  Error(fasa_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  fasa_status status() const { return status_; }

 private:
  fasa_status status_;
};
/// A call or a config that asks for something impossible.
class UsageError : public Error {
  using Error::Error;
};
/// A file that is not what it should be.
class InputError : public Error {
  using Error::Error;
};
/// A memory limit, or the machine's memory, does not suffice.
class BudgetError : public Error {
  using Error::Error;
};
/// An operation failed on the device.
class DeviceError : public Error {
  using Error::Error;
};

/// Throws what `status` stands for. For calls of the C interface that this header does not have.
inline void check(fasa_status status) {
  if (status == FASA_OK) return;
  const char* const text = fasa_last_error();
  switch (status) {
    case FASA_ERROR_USAGE:
      throw UsageError(status, text);
    case FASA_ERROR_INPUT:
      throw InputError(status, text);
    case FASA_ERROR_BUDGET:
      throw BudgetError(status, text);
    case FASA_ERROR_DEVICE:
      throw DeviceError(status, text);
    default:
      throw Error(status, text);
  }
}

/// Of the library that runs, "0.1.0".
inline std::string version() { return fasa_version(); }

namespace detail {
template <auto destroy>
struct Destroy {
  template <typename Handle>
  void operator()(Handle* handle) const {
    destroy(handle);
  }
};
template <typename Handle, auto destroy>
using Owner = std::unique_ptr<Handle, Destroy<destroy>>;
}  // namespace detail

}  // namespace v0
}  // namespace fasa

#endif  // FASA_ERRORS_HPP
