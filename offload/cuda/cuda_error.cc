#include "offload/cuda/cuda_error.h"

#include <fmt/format.h>

#include <string_view>

#include "runtime/base/error.h"

namespace fasa {
namespace {

// The path relative to the repository's root: folders of the build machine mean nothing to a user.
std::string_view short_path(std::string_view path) {
  const size_t at = path.rfind("offload/");
  return at == std::string_view::npos ? path : path.substr(at);
}

}  // namespace

std::string cuda_failure(CudaCalls& calls, CudaStatus status, const CudaCall& call) {
  const std::string bytes = call.bytes > 0 ? fmt::format(" of {} bytes", call.bytes) : "";
  return fmt::format("{}{} failed at {}:{}: {} ({})", call.name, bytes, short_path(call.where.file),
                     call.where.line, calls.name_of(status), calls.text_of(status));
}

void check_cuda(CudaCalls& calls, CudaStatus status, const CudaCall& call) {
  if (status == cuda_status::kSuccess) [[likely]]
    return;
  calls.take_last_error();
  throw DeviceError(cuda_failure(calls, status, call));
}

bool loses_context(CudaStatus status) {
  switch (status) {
    case 214:  // cudaErrorECCUncorrectable
    case 220:  // cudaErrorNvlinkUncorrectable
    case 226:  // cudaErrorContained
    case 700:  // cudaErrorIllegalAddress
    case 702:  // cudaErrorLaunchTimeout
    case 710:  // cudaErrorAssert
    case 714:  // cudaErrorHardwareStackError
    case 715:  // cudaErrorIllegalInstruction
    case 716:  // cudaErrorMisalignedAddress
    case 717:  // cudaErrorInvalidAddressSpace
    case 718:  // cudaErrorInvalidPc
    case 719:  // cudaErrorLaunchFailure
    case 721:  // cudaErrorTensorMemoryLeak
      return true;
    default:
      return false;
  }
}

}  // namespace fasa
