// The tiers that rows can be stored in.
#pragma once

#include <cstdint>

#include "kernels/params.h"
#include "offload/device.h"

namespace fasa {

enum class RowTier : uint8_t {
  kDevice,    // device memory
  kDisk,      // the same, with contents that a step loads from disk when it needs them
  kHost,      // host memory; a short sequence has device copies of all its rows
  kMirrored,  // the same, and while device memory is free other sequences have copies too
};

struct TierTraits {
  RowAccess access;   // how kernels reach rows that have no device copies
  MemorySpace space;  // of the rows
};

constexpr TierTraits traits_of(RowTier tier) {
  if (tier == RowTier::kDevice || tier == RowTier::kDisk)
    return {RowAccess::kLocal, MemorySpace::kDevice};
  return {RowAccess::kOverLink, MemorySpace::kHost};
}

}  // namespace fasa
