// After an operation failed on a device, what it left behind is not to be trusted: the first error
// is remembered, for every later call to say.
#pragma once

#include <optional>
#include <string>

#include "runtime/base/error.h"

namespace fasa {

template <typename Work>
void remember_failure(std::optional<std::string>& failure, const Work& work) {
  try {
    work();
  } catch (const DeviceError& error) {
    if (!failure) failure = error.what();
    throw;
  }
}

}  // namespace fasa
