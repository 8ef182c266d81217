// An emulated device whose kernels charge their work without doing it, except those that decide
// what to fetch: `select` writes the sets of a trace; `resolve` is the real kernel with its tables.
// Hits and misses are thus those of a real decode with these sets. Rows and slices are never
// touched: their memory is address space only.
#pragma once

#include <atomic>
#include <cstdint>

#include "offload/emulated/emulated_device.h"
#include "offload/wrapped_device.h"
#include "runtime/synthetic/trace_tiling.h"
#include "runtime/trace/set_overlap.h"

namespace fasa {

enum class SyntheticCompute : uint8_t {
  kModelled,  // kernels only cost time
  kReal,      // kernels also compute; the sets are still the trace's
};

class SyntheticDevice final : public WrappedDevice {
 public:
  // Both must outlive it. Decode steps begin at `tokens`: a sequence's step number is its length
  // less `tokens`. `tiling` null: nothing decodes.
  SyntheticDevice(EmulatedDevice& inner, const TraceTiling* tiling, int64_t tokens,
                  SyntheticCompute compute);

  // The overlap of the true sets.
  SetOverlap& overlap() { return overlap_; }

 private:
  void do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) override;
  // Rows are not touched: a copy from or to a large allocation takes its time and moves nothing
  // (unless the mode is kReal).
  void do_copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
               OperationTag tag) override;
  KernelWork select(const SelectParams& params);

  EmulatedDevice& emulated_;
  const TraceTiling* tiling_;
  const int64_t tokens_;
  const SyntheticCompute compute_;
  SetOverlap overlap_;
};

}  // namespace fasa
