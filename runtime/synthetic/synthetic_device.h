// An emulated device whose kernels charge their work and do none of it, but for those that decide
// what is fetched: `select` writes the sets of a trace, `resolve` is the real one and keeps its
// tables, so hits and misses are what a real decode with these sets would have. Rows and slices are
// never touched: their memory is address space alone.
#pragma once

#include <atomic>
#include <cstdint>

#include "offload/emulated/emulated_device.h"
#include "offload/wrapped_device.h"
#include "runtime/synthetic/trace_tiling.h"
#include "runtime/trace/set_overlap.h"

namespace fasa {

enum class SyntheticCompute : uint8_t {
  kModelled,  // nothing but times
  kReal,      // every kernel computes as well; the sets are the trace's all the same
};

class SyntheticDevice final : public WrappedDevice {
 public:
  // Both outlive this. Decode steps begin at `tokens`: a sequence's step is what it is longer.
  SyntheticDevice(EmulatedDevice& inner, const TraceTiling& tiling, int64_t tokens,
                  SyntheticCompute compute);

  // Predicted sets that were handed out, per KV head; of them, those that the trace had not.
  struct Predictions {
    uint64_t asked = 0;
    uint64_t not_recorded = 0;
  };
  Predictions predictions() const { return {predictions_asked_, predictions_missing_}; }
  // Of the true sets that were handed out.
  SetOverlap& overlap() { return overlap_; }

 private:
  void do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) override;
  // Rows are not touched either: a copy that begins or ends in a large allocation takes its time
  // and moves nothing (unless everything computes).
  void do_copy(std::span<const CopyRange> ranges, CopyKind kind, StreamView stream,
               OperationTag tag) override;
  KernelWork select(const SelectParams& params);

  EmulatedDevice& emulated_;
  const TraceTiling& tiling_;
  const int64_t tokens_;
  const SyntheticCompute compute_;
  std::atomic<uint64_t> predictions_asked_{0};
  std::atomic<uint64_t> predictions_missing_{0};
  SetOverlap overlap_;
};

}  // namespace fasa
