// A device that looks at the sets that another one's selections take, and passes everything on.
// Nothing is charged for it: the selection is the same operation with the same work.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "offload/device.h"
#include "runtime/set_overlap.h"

namespace fasa {

class SelectionWatch final : public Device {
 public:
  // `inner`: a cpu or emulated device, whose memory the host reads. It outlives this.
  explicit SelectionWatch(Device& inner);

  std::vector<OverlapCount> take_overlap() { return overlap_.take(); }

  // Shows the sets of every decode step's layer, whatever chose them, when their rows are looked
  // up; none of layers that attend to everything. On the cpu device alone: work is done on return
  // there, so the sets are complete. Throws UsageError elsewhere. Null: nobody looks.
  using SetObserver = std::function<void(const ResolveParams&)>;
  void observe_sets(SetObserver observer);

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
  void copy(void* destination, const void* source, size_t bytes, CopyKind kind,
            StreamView stream) override;
  void fill(void* destination, int byte, size_t bytes, StreamView stream) override;
  const KernelTable& kernels() const override;
  void launch(StreamView stream, const char* name, std::function<KernelWork()> work) override;
  double seconds_at(EventView event) override { return inner_.seconds_at(event); }
  bool virtual_clock() const override { return inner_.virtual_clock(); }
  TransferTotals transfers() override { return inner_.transfers(); }
  void set_timeline(Timeline* timeline) override { inner_.set_timeline(timeline); }
  Timeline* timeline() const override { return inner_.timeline(); }
  void set_tag(OperationTag tag) override { inner_.set_tag(tag); }

 private:
  struct Lane;  // what a StreamView of this device points to
  struct Launchers;
  static Lane& lane_of(StreamView stream);
  std::byte* do_allocate(MemorySpace space, size_t bytes, std::string_view purpose) override;
  void do_free(MemorySpace space, std::byte* data, size_t bytes) noexcept override;
  void destroy_stream(StreamView stream) noexcept override;
  // Events are the inner device's own.
  void destroy_event(EventView) noexcept override {}

  Device& inner_;
  SetOverlap overlap_;
  SetObserver set_observer_;
  std::mutex mutex_;
  std::map<const std::byte*, Buffer> buffers_;
};

}  // namespace fasa
