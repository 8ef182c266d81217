// Where memory and streams of a caller's own belong, as a device sees it: what the APIs ask before they
// use them.
#pragma once

#include <cstdint>

#include "offload/device.h"

namespace fasa {

enum class MemoryLocation : uint8_t {
  kShared,     // host code and the device's kernels reach it: pinned and managed memory, and all of
               // the host's where the device is the host
  kHost,       // host code alone
  kDevice,     // the device's kernels and copies alone
  kElsewhere,  // another GPU's
};

// Of any address but null. Throws DeviceError.
MemoryLocation location_of(Device& device, const void* data);

// Throws UsageError where a caller's stream (adopt_stream) was destroyed by its owner, as far as the
// driver notices.
void require_alive(Device& device, StreamView stream);

}  // namespace fasa
