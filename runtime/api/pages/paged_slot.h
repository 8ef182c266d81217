// Tables of appends or prefills on the device, and the address arrays that they refer to. Two slots
// are used in turn.
#pragma once

#include <cstddef>

#include "offload/pages/pointer_array.h"
#include "runtime/api/kv_metrics.h"
#include "scheduler/step/descriptor_buffer.h"

namespace fasa {

struct PagedSlot {
  PagedSlot(Device& device, Fences& fences)
      : step(device, fences), rows(device, "page tables"), slices(device, "page tables") {}

  void add_memory(KvMemory* memory) const {
    memory->device_scratch += step.bytes() + rows.device_bytes() + slices.device_bytes();
    memory->host_tables += rows.host_bytes() + slices.host_bytes();
  }

  DescriptorBuffer step;
  PointerArray rows;
  PointerArray slices;
};

}  // namespace fasa
