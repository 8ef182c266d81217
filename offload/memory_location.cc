#include "offload/memory_location.h"

#include "offload/cuda/cuda_device.h"

namespace fasa {

MemoryLocation location_of(Device& device, const void* data) {
  if (device.kind() != DeviceKind::kCuda) return MemoryLocation::kShared;
  auto& cuda = dynamic_cast<CudaDevice&>(device);
  const CudaLocation location = cuda.locate(data);
  switch (location.kind) {
    case CudaLocation::Kind::kUnknown:
      return MemoryLocation::kHost;
    case CudaLocation::Kind::kPinned:
    case CudaLocation::Kind::kManaged:
      return MemoryLocation::kShared;
    case CudaLocation::Kind::kDevice:
      break;
  }
  return location.gpu == cuda.index() ? MemoryLocation::kDevice : MemoryLocation::kElsewhere;
}

void require_alive(Device& device, StreamView stream) {
  if (device.kind() == DeviceKind::kCuda) dynamic_cast<CudaDevice&>(device).require_alive(stream);
}

}  // namespace fasa
