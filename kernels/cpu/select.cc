// TIP over all sequences of a step. Each sequence's pages are split into ranges for the threads;
// the set is exact, so it depends on neither.
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <atomic>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/phases.h"
#include "kernels/cpu/select/select_range.h"
#include "kernels/kernel_work.h"
#include "kernels/target.h"

namespace fasa::cpu {
namespace {

// Pages times KV heads of a range below which starting it costs more than it saves.
constexpr int kMinWork = 128;
// Ranges in progress per thread: enough for all threads to end together.
constexpr int kRangesPerThread = 4;

struct SequenceTask {
  int sequence = 0;
  SelectPlan plan;
  size_t first_range = 0;
  size_t ranges = 0;

  int first_page() const { return plan.first_page(); }
  int pages() const { return plan.pages(); }
};

class SelectCall {
 public:
  explicit SelectCall(const SelectParams& params)
      : params_(params),
        bodies_(score_bodies(active_target())),
        kv_heads_(params.step.head_count()),
        threads_(tbb::this_task_arena::max_concurrency()) {}

  KernelWork run();

 private:
  int64_t index_of(int sequence, int kv_head) const {
    return int64_t{sequence} * params_.step.layout.kv_heads + kv_head;
  }
  void take_all(int sequence, const SelectPlan& plan);
  void add_task(int sequence, const SelectPlan& plan);
  void run_tasks();

  const SequenceTask& task_of_range(size_t range) const;
  // work(the parts of head i of the tasks' heads, sequence, kv_head)
  template <typename Work>
  void with_head(SelectRange* ranges, size_t i, const Work& work) const;

  const SelectParams& params_;
  const ScoreBodies& bodies_;
  const int kv_heads_;  // of this call
  const int threads_;
  std::vector<SequenceTask> tasks_;
  size_t ranges_ = 0;
  uint64_t bytes_ = 0;
  uint64_t nans_ = 0;
};

const SequenceTask& SelectCall::task_of_range(size_t range) const {
  size_t t = 0;
  while (range >= tasks_[t].first_range + tasks_[t].ranges) ++t;
  return tasks_[t];
}

template <typename Work>
void SelectCall::with_head(SelectRange* ranges, size_t i, const Work& work) const {
  const auto heads = static_cast<size_t>(kv_heads_);
  const SequenceTask& task = tasks_[i / heads];
  const int place = static_cast<int>(i % heads);
  // Grows only: no allocation after the first steps (except in a rescan). No work waits for other
  // tasks, so a second task of this thread cannot find it in use.
  thread_local std::vector<HeadPart*> parts;
  parts.clear();
  for (size_t r = 0; r < task.ranges; ++r) {
    parts.push_back(&ranges[task.first_range + r].head(place));
  }
  work(HeadSelection(parts), task.sequence, params_.step.first_head() + place);
}

void SelectCall::take_all(int sequence, const SelectPlan& plan) {
  for (int head = 0; head < kv_heads_; ++head) {
    const int64_t index = index_of(sequence, params_.step.first_head() + head);
    params_.selected_sizes[index] =
        write_all(plan, params_.sets + index * params_.selected_capacity);
  }
}

void SelectCall::add_task(int sequence, const SelectPlan& plan) {
  SequenceTask task{sequence, plan, ranges_, 1};
  if (threads_ > 1) {
    task.ranges = static_cast<size_t>(
        std::clamp(task.pages() * kv_heads_ / kMinWork, 1, kRangesPerThread * threads_));
  }
  ranges_ += task.ranges;
  tasks_.push_back(task);
}

void SelectCall::run_tasks() {
  thread_local std::vector<SelectRange> shared_ranges;  // grows only; run() isolates us
  if (shared_ranges.size() < ranges_) shared_ranges.resize(ranges_);
  SelectRange* const all = shared_ranges.data();
  const auto sample = [&](size_t range) {
    const SequenceTask& task = task_of_range(range);
    const auto pages = static_cast<size_t>(task.pages());
    const size_t i = range - task.first_range;
    all[range].begin(params_, task.sequence, task.plan, bodies_,
                     task.first_page() + static_cast<int>(pages * i / task.ranges),
                     task.first_page() + static_cast<int>(pages * (i + 1) / task.ranges));
    all[range].sample();
  };
  const auto set_bounds = [&](size_t i) {
    with_head(all, i, [](HeadSelection head, int, int) { head.set_bounds(); });
  };
  const auto scan = [&](size_t range) { all[range].scan(); };
  const auto others_of = [&](int sequence, int kv_head) {
    return NextBestOut{LowBitOut::of(params_, sequence, kv_head),
                       RunnersUpOut::of(params_, sequence, kv_head)};
  };
  const auto set_of = [&](int64_t index) {
    return params_.sets + index * params_.selected_capacity;
  };
  const auto write_size = [&](int sequence, int kv_head, int32_t size) {
    const int64_t index = index_of(sequence, kv_head);
    params_.selected_sizes[index] = size;
    if (params_.low_bit_pages.capacity == 0) return;
    const SelectPlan plan = plan_selection(params_, params_.step.sequences[sequence]);
    LowBitPagesOut::of(params_, sequence, kv_head, plan).take_out(bodies_, set_of(index), size);
    params_.low_bit_pages.counts[index] = plan.pages();
  };
  const auto finish = [&](size_t i) {
    with_head(all, i, [&](HeadSelection head, int sequence, int kv_head) {
      const int64_t index = index_of(sequence, kv_head);
      const auto size = head.finish(set_of(index), others_of(sequence, kv_head));
      if (size) write_size(sequence, kv_head, *size);
    });
  };
  const auto rescan = [&](size_t range) { all[range].rescan(); };
  const auto finish_rescan = [&](size_t i) {
    with_head(all, i, [&](HeadSelection head, int sequence, int kv_head) {
      if (!head.rescans()) return;
      const int64_t index = index_of(sequence, kv_head);
      write_size(sequence, kv_head,
                 head.finish_rescan(set_of(index), others_of(sequence, kv_head)));
    });
  };
  const size_t heads = tasks_.size() * static_cast<size_t>(kv_heads_);
  const Phase phases[] = {{ranges_, sample}, {heads, set_bounds}, {ranges_, scan},
                          {heads, finish},   {ranges_, rescan},   {heads, finish_rescan}};
  run_phases(phases, ranges_ == 1 ? 1 : threads_);
  for (const SequenceTask& task : tasks_) {
    if (params_.low_bit_pages.capacity == 0) break;
    bytes_ +=
        static_cast<uint64_t>(kv_heads_) * page_scores_bytes(params_.step.layout, task.pages());
  }
  for (size_t range = 0; range < ranges_; ++range) {
    bytes_ += all[range].bytes_read();
    nans_ += all[range].nan_scores();
  }
  tasks_.clear();
  ranges_ = 0;
}

KernelWork SelectCall::run() {
  thread_local std::vector<SequenceTask> shared_tasks;
  tasks_.swap(shared_tasks);
  tasks_.clear();
  tbb::this_task_arena::isolate([&] {
    for (int s = 0; s < params_.step.count; ++s) {
      for (int h = 0; h < kv_heads_; ++h) {
        const int64_t index = index_of(s, params_.step.first_head() + h);
        params_.selected_sizes[index] = 0;
        if (params_.low_bit.capacity > 0) params_.low_bit.sizes[index] = 0;
        if (params_.low_bit_pages.capacity > 0) params_.low_bit_pages.counts[index] = 0;
        if (params_.runners_up.capacity > 0) params_.runners_up.sizes[index] = 0;
      }
      const SequenceDesc& sequence = params_.step.sequences[s];
      if (sequence.mode != StepMode::kDecode) continue;
      const SelectPlan plan = plan_selection(params_, sequence);
      if (plan.is_dense()) {
        take_all(s, plan);
        continue;
      }
      add_task(s, plan);
      if (ranges_ >= static_cast<size_t>(kRangesPerThread * threads_)) run_tasks();
    }
    if (!tasks_.empty()) run_tasks();
  });
  tasks_.swap(shared_tasks);
  if (nans_ > 0 && params_.counters != nullptr) {
    std::atomic_ref<uint64_t>(params_.counters->nan_scores)
        .fetch_add(nans_, std::memory_order_relaxed);
  }
  return {.device_bytes = bytes_};
}

}  // namespace

template <>
KernelWork run(const SelectParams& params) {
  return SelectCall(params).run();
}

}  // namespace fasa::cpu
