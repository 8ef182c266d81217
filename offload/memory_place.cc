#include "offload/memory_place.h"

#include "offload/cuda/cuda_device.h"

namespace fasa {

MemoryPlace place_of(Device& device, const void* data) {
  if (device.kind() != DeviceKind::kCuda) return MemoryPlace::kShared;
  auto& cuda = dynamic_cast<CudaDevice&>(device);
  const CudaPlace place = cuda.locate(data);
  switch (place.kind) {
    case CudaPlace::Kind::kUnknown:
      return MemoryPlace::kHost;
    case CudaPlace::Kind::kPinned:
    case CudaPlace::Kind::kManaged:
      return MemoryPlace::kShared;
    case CudaPlace::Kind::kDevice:
      break;
  }
  return place.gpu == cuda.index() ? MemoryPlace::kDevice : MemoryPlace::kElsewhere;
}

void require_alive(Device& device, StreamView stream) {
  if (device.kind() == DeviceKind::kCuda) dynamic_cast<CudaDevice&>(device).require_alive(stream);
}

}  // namespace fasa
