#include "runtime/base/parallel.h"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/parallel_for.h>

namespace fasa::parallel_detail {

void run_blocks(int64_t first, int64_t last, int64_t grain, Split split, BlockBody body) {
  const tbb::blocked_range<int64_t> range(first, last, static_cast<size_t>(grain));
  const auto run = [body](const tbb::blocked_range<int64_t>& block) {
    body.call(body.body, block.begin(), block.end());
  };
  if (split == Split::kFinest) {
    tbb::parallel_for(range, run, tbb::simple_partitioner());
  } else {
    tbb::parallel_for(range, run);
  }
}

void run_in(tbb::task_arena& arena, BlockBody body) {
  arena.execute([body] { body.call(body.body, 0, 1); });
}

}  // namespace fasa::parallel_detail
