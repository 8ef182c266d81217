// Copies rows from pinned host memory: device threads read them over the link. A copy call per row
// would cost 2.3 us, a thread's load of 16 bytes nothing. Resolve has written the list of copies.
// Those of all heads are split over all threads in units of 16 bytes, so a row of 512 bytes takes
// one warp, and each thread has several loads in flight before it stores.
#pragma once

#include "kernels/cuda/copy_units_inl.h"
#include "kernels/cuda/simt.h"
#include "kernels/params.h"

namespace fasa::cuda {

struct GatherKernel {
  static constexpr const char* kName = "gather";
  static constexpr int kThreads = 512;
  // 1 MiB in flight: 128 KiB reach 17 GB/s of 55 on an H100.
  static constexpr int kBlocks = 16;
  static constexpr int kHeads = 1024;  // heads whose counts a block sums at a time

  struct Shared {
    int32_t ends[kHeads];  // rows of the heads up to and including this one
  };

  GatherParams params;

  FASA_DEVICE void operator()() const {
    const int heads = params.count * params.layout.kv_heads;
    for (int first = params.first; first < heads; first += kHeads * params.stride) {
      const int64_t left = (int64_t{heads} - first + params.stride - 1) / params.stride;
      const int count = static_cast<int>(left < kHeads ? left : kHeads);
      sum_counts(first, count);
      copy(first, count);
      simt::sync_block();
    }
  }

 private:
  // The first warp's work: heads are few, and the loop short.
  FASA_DEVICE void sum_counts(int first, int count) const {
    int32_t* ends = simt::shared<Shared>().ends;
    if (simt::warp() == 0) {
      int32_t sum = 0;
      for (int begin = 0; begin < count; begin += simt::kWarpThreads) {
        const int i = begin + simt::lane();
        int32_t rows = i < count ? params.fetch_counts[first + i * params.stride] : 0;
        rows = simt::warp_prefix_sum(rows);
        if (i < count) ends[i] = sum + rows;
        sum += simt::shuffle(rows, simt::kWarpThreads - 1);
      }
    }
    simt::sync_block();
  }

  // The head that flat row `row` belongs to.
  FASA_DEVICE static int head_of(const int32_t* ends, int count, int64_t row) {
    int low = 0;
    int high = count - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (row < ends[middle]) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  FASA_DEVICE void copy(int first, int count) const {
    const int32_t* ends = simt::shared<Shared>().ends;
    const int units = static_cast<int>(params.layout.row.bytes() / sizeof(simt::Word16));
    const int64_t all = int64_t{ends[count - 1]} * units;
    copy_units(all, simt::block_x(), simt::grid_x(), [&](int64_t unit) {
      const int64_t row = unit / units;
      const int head = head_of(ends, count, row);
      const int64_t in_head = row - (head > 0 ? ends[head - 1] : 0);
      const int64_t list = int64_t{first} + int64_t{head} * params.stride;
      return UnitCopy::of(params.fetches[list * params.wave + in_head], unit % units);
    });
  }
};

template <typename Launcher>
void start(const GatherParams& params, const Launcher& launch) {
  launch(GatherKernel{params},
         {.x = GatherKernel::kBlocks, .shared_bytes = sizeof(GatherKernel::Shared)});
}

}  // namespace fasa::cuda
