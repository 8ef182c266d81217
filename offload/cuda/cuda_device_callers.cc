// A caller's streams and addresses, as the device handles them.
#include <fmt/format.h>

#include "offload/cuda/cuda_device.h"
#include "runtime/base/error.h"

namespace fasa {

// Checks an engine's stream.
void CudaDevice::require_ours(void* native) {
  shared_->require_context();
  const CudaGpuScope scope = shared_->enter();
  int gpu = index();
  const CudaStatus status = calls_.gpu_of_stream(native, &gpu);
  if (status == cuda_status::kSuccess && gpu == index()) return;
  if (status == cuda_status::kSuccess) {
    throw UsageError(
        fmt::format("the stream belongs to cuda:{}; allowed: streams of {}", gpu, name()));
  }
  if (loses_context(status)) shared_->check(status, {"cudaStreamGetDevice"});
  calls_.take_last_error();
  if (status == cuda_status::kNotSupported) return;
  throw UsageError(fmt::format("native is not a valid stream, or the stream was destroyed: {} ({})",
                               calls_.name_of(status), calls_.text_of(status)));
}

void CudaDevice::require_alive(StreamView view) {
  const CudaStream& stream = cuda_stream_of(view);
  if (stream.ownership() == CudaStream::Ownership::kTheirs) require_ours(stream.native());
}

CudaLocation CudaDevice::locate(const void* data) {
  shared_->require_context();
  const CudaGpuScope scope = shared_->enter();
  CudaLocation location;
  shared_->check(calls_.locate(data, &location), {"cudaPointerGetAttributes"});
  return location;
}

Stream CudaDevice::adopt_stream(void* native, std::string_view name) {
  require_ours(native);
  return add_stream(native, CudaStream::Ownership::kTheirs, name);
}

}  // namespace fasa
