#include "runtime/profile/selection_observer.h"

#include <utility>

#include "kernels/run_on_host.h"
#include "scheduler/step/scratch_arena.h"

namespace fasa {
namespace {

// The layout of a selection's results in memory that begins at `base`.
struct Outcome {
  SequenceDesc* sequences;
  int32_t* selected_sizes;
  int32_t* sets;
  size_t bytes;
};

Outcome allot(const SelectParams& params, std::byte* base) {
  const int64_t heads = int64_t{params.step.count} * params.step.layout.kv_heads;
  ScratchArena arena(base);
  Outcome outcome{};
  outcome.sequences = arena.take<SequenceDesc>(params.step.count);
  outcome.selected_sizes = arena.take<int32_t>(heads);
  outcome.sets = arena.take<int32_t>(heads * params.selected_capacity);
  outcome.bytes = arena.bytes();
  return outcome;
}

}  // namespace

SelectionObserver::SelectionObserver(Device& inner) : WrappedDevice(inner) {
  if (host_work() != nullptr) return;
  copies_ = inner.create_stream(StreamPriority::kNormal, "observer");
  selected_ = inner.create_event();
  read_ = inner.create_event();
}

void SelectionObserver::do_enqueue(const KernelCall& call, StreamView stream, OperationTag tag) {
  const auto* const select = std::get_if<SelectParams>(&call);
  if (select == nullptr || (host_work() == nullptr && select->ahead > 0)) {
    return inner_.enqueue(call, stream, tag);
  }
  if (host_work() != nullptr) {
    return launch(
        stream, SelectParams::kName,
        [this, params = *select] {
          const KernelWork work = run_on_host(params);
          overlap_.observe(params);
          return work;
        },
        tag);
  }
  if (select->step.first_head() == 0) inner_.wait(stream, read_.view(), tag);
  inner_.enqueue(call, stream, tag);
  // Heads may be selected in parts: the sets are complete after the last part.
  const StepParams& step = select->step;
  if (step.first_head() + step.head_count() < step.layout.kv_heads) return;
  copy_sets(*select, stream);
}

// One sequence's sets are a few kilobytes: their memory is allocated once.
void SelectionObserver::copy_sets(const SelectParams& params, StreamView stream) {
  const auto layer = static_cast<size_t>(params.step.attending_layer());
  if (copied_.size() <= layer) copied_.resize(layer + 1);
  Copied& copied = copied_[layer];
  const size_t bytes = allot(params, nullptr).bytes;
  if (copied.memory.bytes() < bytes) {
    copied.memory =
        inner_.allocate(MemorySpace::kHost, bytes, "copies of selected sets for the profile");
  }
  const Outcome to = allot(params, copied.memory.data());
  const OperationTag tag = tag_of(params.step.attending_layer(), Cause::kControl);
  const auto fetch = [&](auto* destination, const auto* source, int64_t count) {
    inner_.copy(destination, source, static_cast<size_t>(count) * sizeof(*source),
                CopyKind::kDeviceToHost, copies_.view(), tag);
  };
  const int64_t heads = int64_t{params.step.count} * params.step.layout.kv_heads;
  inner_.record(selected_.view(), stream);
  inner_.wait(copies_.view(), selected_.view(), tag);
  fetch(to.sequences, params.step.sequences, params.step.count);
  fetch(to.selected_sizes, params.selected_sizes, heads);
  fetch(to.sets, params.sets, heads * params.selected_capacity);
  inner_.record(read_.view(), copies_.view());
  copied.params = params;
  copied.params.step.heads = {};
  copied.params.step.sequences = to.sequences;
  copied.params.selected_sizes = to.selected_sizes;
  copied.params.sets = to.sets;
  copied.fresh = true;
}

void SelectionObserver::observe_copied() {
  if (copied_.empty()) return;
  inner_.synchronize(copies_.view());
  for (Copied& copied : copied_) {
    if (std::exchange(copied.fresh, false)) overlap_.observe(copied.params);
  }
}

std::vector<OverlapCount> SelectionObserver::take_overlap() {
  observe_copied();
  return overlap_.take();
}

}  // namespace fasa
