// One device's kernels over hot rows, so that the same tests run on each device.
#pragma once

#include <functional>

#include "kernels/cpu/kernels.h"
#include "tests/support/reference/kernels.h"

namespace fasa {

struct RowKernels {
  std::function<void(const ResolveParams&)> resolve;
  std::function<void(const ClaimSlotsParams&)> claim_slots;
  std::function<void(const GatherParams&)> gather;
  std::function<void(const FetchParams&)> fetch;
};

inline RowKernels reference_row_kernels() {
  return {reference::resolve, reference::claim_slots, reference::gather, reference::fetch};
}
inline RowKernels cpu_row_kernels() {
  return {cpu::run<ResolveParams>, cpu::run<ClaimSlotsParams>, cpu::run<GatherParams>,
          cpu::run<FetchParams>};
}

}  // namespace fasa
