// A CUDA call that failed where kernels are launched.
#pragma once

#include <string>

#include "runtime/base/error.h"

namespace fasa::cuda {

// Carries the status, because the call has taken the thread's last error, and the runtime need not
// report a lost context twice.
class LaunchError : public DeviceError {
 public:
  LaunchError(const std::string& message, int status) : DeviceError(message), status_(status) {}
  int status() const { return status_; }  // a cudaError_t

 private:
  int status_;
};

}  // namespace fasa::cuda
