// Copies the fetched rows. Random rows of 512 bytes: the hardware sees no pattern, so each row is
// asked for some rows before it is copied.

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

}  // namespace

template <>
KernelWork run(const GatherParams& params) {
  const CacheLayout& layout = params.layout;
  const int all = params.count * layout.kv_heads;
  const int heads = params.first < all ? (all - params.first - 1) / params.stride + 1 : 0;
  const int chunks = (params.wave + kTaskRows - 1) / kTaskRows;
  std::atomic<int64_t> rows{0};
  parallel_for(0, heads * chunks, [&](int task) {
    const int head = params.first + task / chunks * params.stride;
    const int begin = task % chunks * kTaskRows;
    const int count = std::min(kTaskRows, params.fetch_counts[head] - begin);
    if (count <= 0) return;
    copy_rows(params.fetches + int64_t{head} * params.wave + begin, count, layout.row.bytes());
    rows += count;
  });
  KernelWork work;
  work.h2d_bytes = rows_bytes(layout, rows);
  return work;
}

}  // namespace fasa::cpu
