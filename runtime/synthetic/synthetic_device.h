// An emulated device whose kernels charge their work and do none of it, but for those that decide
// what is fetched: `select` writes the sets of a trace, `resolve` is the real one and keeps its
// tables, so hits and misses are what a real decode with these sets would have. Rows and slices are
// never touched: their memory is address space alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "offload/emulated_device.h"
#include "runtime/set_overlap.h"
#include "runtime/synthetic/trace_tiling.h"

namespace fasa {

enum class SyntheticCompute : uint8_t {
  kModelled,  // nothing but times
  kReal,      // every kernel computes as well; the sets are the trace's all the same
};

class SyntheticDevice final : public Device {
 public:
  // Both outlive this. Decode steps begin at `tokens`: a sequence's step is what it is longer.
  SyntheticDevice(EmulatedDevice& inner, const TraceTiling& tiling, int64_t tokens,
                  SyntheticCompute compute);

  // Guessed sets that were handed out, per KV head; of them, those that the trace had not.
  struct Guesses {
    uint64_t asked = 0;
    uint64_t not_recorded = 0;
  };
  Guesses guesses() const { return {guesses_asked_, guesses_missing_}; }
  // Of the true sets that were handed out.
  SetOverlap& overlap() { return overlap_; }

  DeviceKind kind() const override { return inner_.kind(); }
  std::string name() const override { return inner_.name(); }
  MemoryUse memory(MemorySpace space) const override { return inner_.memory(space); }
  Stream create_stream(StreamPriority priority, std::string_view name) override;
  Event create_event() override { return inner_.create_event(); }
  void record(EventView event, StreamView stream) override;
  void wait(StreamView stream, EventView event) override;
  void synchronize(StreamView stream) override;
  void synchronize(EventView event) override { inner_.synchronize(event); }
  bool done(EventView event) override { return inner_.done(event); }
  // Rows are not touched either: a copy that begins or ends in a large allocation takes its time
  // and moves nothing (unless everything computes).
  void copy(void* destination, const void* source, size_t bytes, CopyKind kind,
            StreamView stream) override;
  void fill(void* destination, int byte, size_t bytes, StreamView stream) override;
  const KernelTable& kernels() const override;
  void launch(StreamView stream, const char* name, std::function<KernelWork()> work) override;
  double seconds_at(EventView event) override { return inner_.seconds_at(event); }
  bool virtual_clock() const override { return true; }
  TransferTotals transfers() override { return inner_.transfers(); }
  void set_timeline(Timeline* timeline) override { inner_.set_timeline(timeline); }
  Timeline* timeline() const override { return inner_.timeline(); }
  void set_tag(OperationTag tag) override { inner_.set_tag(tag); }

 private:
  struct Lane;  // what a StreamView of this device points to
  struct Launchers;
  static Lane& lane_of(StreamView stream);
  KernelWork select(const SelectParams& params);
  bool is_large(const void* data) const;

  std::byte* do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) override;
  void do_free(MemorySpace space, std::byte* data, size_t bytes) noexcept override;
  void destroy_stream(StreamView stream) noexcept override;
  // Events are the inner device's own.
  void destroy_event(EventView) noexcept override {}

  EmulatedDevice& inner_;
  const TraceTiling& tiling_;
  const int64_t tokens_;
  const SyntheticCompute compute_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, Buffer> buffers_;
  std::atomic<uint64_t> guesses_asked_{0};
  std::atomic<uint64_t> guesses_missing_{0};
  SetOverlap overlap_;
};

}  // namespace fasa
