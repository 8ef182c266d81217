// TIP over all sequences of a step: one task per (sequence, KV head), or several over page ranges
// where there are fewer of those than threads. The set is exact, so it depends on neither.
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <atomic>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/select_head.h"
#include "kernels/cpu/target.h"

namespace fasa::cpu {
namespace {

constexpr int kLeastPages = 128;  // a part's, below which starting it costs more than it saves
constexpr int kInlinePages = 24;  // of all tasks together, below which nothing is spawned

struct HeadTask {
  int sequence;
  int kv_head;
  SelectPlan plan;

  int first_page() const { return plan.first / kPageTokens; }
  int end_page() const { return (plan.end - 1) / kPageTokens + 1; }
  int pages() const { return plan.takes_all() ? 0 : end_page() - first_page(); }
};

class SelectCall {
 public:
  explicit SelectCall(const SelectParams& params)
      : params_(params), bodies_(score_bodies(active_target())) {}

  KernelWork run();

 private:
  int32_t* set_of(const HeadTask& task) const {
    return params_.sets + index_of(task) * params_.set_capacity;
  }
  int64_t index_of(const HeadTask& task) const {
    return int64_t{task.sequence} * params_.step.layout.kv_heads + task.kv_head;
  }
  void finish(const HeadTask& task, std::span<HeadPart> parts);
  void run_whole(const HeadTask& task);
  void run_split(const std::vector<HeadTask>& tasks, int splits);

  const SelectParams& params_;
  const ScoreBodies& bodies_;
  std::atomic<uint64_t> bytes_{0};
};

void SelectCall::finish(const HeadTask& task, std::span<HeadPart> parts) {
  params_.set_sizes[index_of(task)] = HeadSelection(parts).finish(set_of(task));
  uint64_t bytes = 0;
  uint64_t nans = 0;
  for (const HeadPart& part : parts) {
    bytes += part.bytes_read();
    nans += part.nan_scores();
  }
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (nans > 0 && params_.counters != nullptr) {
    std::atomic_ref<uint64_t>(params_.counters->nan_scores)
        .fetch_add(nans, std::memory_order_relaxed);
  }
}

void SelectCall::run_whole(const HeadTask& task) {
  if (task.plan.takes_all()) {
    params_.set_sizes[index_of(task)] = write_all(task.plan, set_of(task));
    return;
  }
  // Grows only: after the first steps nothing is allocated (but by a rescan). Nothing below waits
  // for other tasks, so no second task of this thread can find it in use.
  thread_local HeadPart part;
  part.begin(params_, task.sequence, task.kv_head, bodies_, task.first_page(), task.end_page());
  part.sample();
  HeadSelection({&part, 1}).set_bounds();
  part.scan();
  finish(task, {&part, 1});
}

// Parts of all tasks through the same phases side by side.
void SelectCall::run_split(const std::vector<HeadTask>& tasks, int splits) {
  struct Range {
    size_t first;
    size_t count;
  };
  thread_local std::vector<HeadPart> parts;  // grows only; the caller isolates us
  std::vector<Range> ranges;
  size_t total = 0;
  for (const HeadTask& task : tasks) {
    const auto count = static_cast<size_t>(std::clamp(task.pages() / kLeastPages, 1, splits));
    ranges.push_back({total, count});
    total += count;
  }
  if (parts.size() < total) parts.resize(total);
  HeadPart* const all = parts.data();
  const auto part_tasks = [&](const auto& work) {
    tbb::parallel_for(size_t{0}, tasks.size(), [&](size_t t) {
      if (tasks[t].plan.takes_all()) return;
      tbb::parallel_for(size_t{0}, ranges[t].count, [&, t](size_t i) { work(t, i); });
    });
  };
  part_tasks([&](size_t t, size_t i) {
    const HeadTask& task = tasks[t];
    const auto pages = static_cast<size_t>(task.pages());
    const size_t count = ranges[t].count;
    HeadPart& part = all[ranges[t].first + i];
    part.begin(params_, task.sequence, task.kv_head, bodies_,
               task.first_page() + static_cast<int>(pages * i / count),
               task.first_page() + static_cast<int>(pages * (i + 1) / count));
    part.sample();
  });
  const auto parts_of = [&](size_t t) {
    return std::span<HeadPart>(all + ranges[t].first, ranges[t].count);
  };
  for (size_t t = 0; t < tasks.size(); ++t) {
    if (!tasks[t].plan.takes_all()) HeadSelection(parts_of(t)).set_bounds();
  }
  part_tasks([&](size_t t, size_t i) { all[ranges[t].first + i].scan(); });
  tbb::parallel_for(size_t{0}, tasks.size(), [&](size_t t) {
    if (tasks[t].plan.takes_all()) {
      run_whole(tasks[t]);
    } else {
      finish(tasks[t], parts_of(t));
    }
  });
}

KernelWork SelectCall::run() {
  const CacheLayout& layout = params_.step.layout;
  thread_local std::vector<HeadTask> shared_tasks;
  std::vector<HeadTask> tasks;
  tasks.swap(shared_tasks);
  tasks.clear();
  int64_t pages = 0;
  int most = 0;
  for (int s = 0; s < params_.step.count; ++s) {
    const SequenceDesc& sequence = params_.step.sequences[s];
    for (int h = 0; h < layout.kv_heads; ++h) {
      HeadTask task{s, h, {}};
      params_.set_sizes[index_of(task)] = 0;
      if (sequence.mode != StepMode::kDecode) continue;
      task.plan = plan_selection(params_, sequence);
      tasks.push_back(task);
      pages += task.pages();
      most = std::max(most, task.pages());
    }
  }
  const int threads = tbb::this_task_arena::max_concurrency();
  const auto count = static_cast<int>(tasks.size());
  if (threads == 1 || pages <= kInlinePages) {
    for (const HeadTask& task : tasks) run_whole(task);
  } else if (count < 2 * threads && most >= 2 * kLeastPages) {
    tbb::this_task_arena::isolate([&] { run_split(tasks, (2 * threads + count - 1) / count); });
  } else {
    tbb::parallel_for(size_t{0}, tasks.size(), [&](size_t t) { run_whole(tasks[t]); });
  }
  tasks.swap(shared_tasks);
  KernelWork work;
  work.device_bytes = bytes_.load(std::memory_order_relaxed);
  return work;
}

}  // namespace

KernelWork select(const SelectParams& params) { return SelectCall(params).run(); }

}  // namespace fasa::cpu
