// Copies the fetched rows. The hardware cannot predict random rows of 512 bytes, so each row is
// prefetched a few rows ahead.

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/cpu/kernels.h"
#include "kernels/kernel_work.h"
#include "runtime/base/parallel.h"

namespace fasa::cpu {
namespace {

constexpr int kAhead = 8;      // rows
constexpr int kTaskRows = 64;  // 32 KiB at 512 bytes a row

void copy_rows(const FetchItem* items, int count, int64_t row_bytes) {
  const auto prefetch = [row_bytes](const std::byte* row) {
    for (int64_t at = 0; at < row_bytes; at += kAlignment) __builtin_prefetch(row + at);
  };
  for (int i = 0; i < std::min(kAhead, count); ++i) prefetch(items[i].source);
  for (int i = 0; i < count; ++i) {
    if (i + kAhead < count) prefetch(items[i + kAhead].source);
    std::memcpy(items[i].destination, items[i].source, static_cast<size_t>(row_bytes));
  }
}

struct FetchLists {
  const FetchItem* fetches;
  const int32_t* counts;
  int32_t wave;  // entries per head
};

// Copies for `heads` heads, the i-th of which is head_at(i). Returns the bytes copied.
template <typename HeadAt>
uint64_t copy_lists(const CacheLayout& layout, const FetchLists& lists, int heads,
                    const HeadAt& head_at) {
  const int chunks = (lists.wave + kTaskRows - 1) / kTaskRows;
  std::atomic<int64_t> rows{0};
  parallel_for(0, heads * chunks, [&](int task) {
    const int head = head_at(task / chunks);
    const int begin = task % chunks * kTaskRows;
    const int count = std::min(kTaskRows, lists.counts[head] - begin);
    if (count <= 0) return;
    copy_rows(lists.fetches + int64_t{head} * lists.wave + begin, count, layout.row.bytes());
    rows += count;
  });
  return rows_bytes(layout, rows);
}

}  // namespace

template <>
KernelWork run(const GatherParams& params) {
  const int all = params.count * params.layout.kv_heads;
  const int heads = params.first < all ? (all - params.first - 1) / params.stride + 1 : 0;
  KernelWork work;
  work.h2d_bytes = copy_lists(params.layout, {params.fetches, params.fetch_counts, params.wave},
                              heads, [&](int i) { return params.first + i * params.stride; });
  return work;
}

template <>
KernelWork run(const FetchParams& params) {
  const ResolveParams& resolve = params.resolve;
  const StepParams& step = resolve.step;
  KernelWork work = run(resolve);
  work.bytes_before_link = work.device_bytes;
  work.h2d_bytes =
      copy_lists(step.layout, {resolve.fetches, resolve.fetch_counts, resolve.end - resolve.begin},
                 step.count * step.head_count(), [&](int i) { return step.head_index(i); });
  return work;
}

}  // namespace fasa::cpu
