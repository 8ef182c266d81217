// Where a caller's memory and streams belong, as a device sees it. The APIs check this before use.
#pragma once

#include <cstdint>

#include "offload/device.h"

namespace fasa {

enum class MemoryLocation : uint8_t {
  kShared,     // accessible to host code and kernels: pinned and managed memory; on devices in host
               // memory, all of it
  kHost,       // accessible to host code only
  kDevice,     // accessible to the device's kernels and copies only
  kElsewhere,  // memory of another GPU
};

// Any address but null. Throws DeviceError.
MemoryLocation location_of(Device& device, const void* data);

// Throws UsageError if the owner of a caller's stream (adopt_stream) has destroyed it, as far as
// the driver detects that.
void require_alive(Device& device, StreamView stream);

}  // namespace fasa
