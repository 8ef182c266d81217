/// \file
/// Exceptions, and owners of the library's handles.
#ifndef FASA_ERRORS_HPP
#define FASA_ERRORS_HPP

#include <fasa/fasa.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace fasa {
inline namespace v0 {

/// Thrown by a failed call, which has changed nothing. what() is the library's message.
class Error : public std::runtime_error {
 public:
  Error(fasa_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  fasa_status status() const { return status_; }

 private:
  fasa_status status_;
};
/// The call or the config is invalid.
class UsageError : public Error {
  using Error::Error;
};
/// A file is missing, damaged or not supported.
class InputError : public Error {
  using Error::Error;
};
/// A memory limit, or the machine's memory, is too small.
class BudgetError : public Error {
  using Error::Error;
};
/// An operation failed on the device.
class DeviceError : public Error {
  using Error::Error;
};

/// Throws the exception of `status`. For calls of the C API that this header does not wrap.
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

/// The version of the loaded library, "0.1.0".
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
