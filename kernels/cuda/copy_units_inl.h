// Copies in units of 16 bytes by all threads of several blocks; a thread loads several before it
// stores, since reads over the link take microseconds.
#pragma once

#include "kernels/cuda/simt.h"
#include "kernels/params.h"

namespace fasa::cuda {

struct UnitCopy {
  const simt::Word16* from;
  simt::Word16* to;

  FASA_DEVICE static UnitCopy of(const FetchItem& item, int64_t unit) {
    return {reinterpret_cast<const simt::Word16*>(item.source) + unit,
            reinterpret_cast<simt::Word16*>(item.destination) + unit};
  }
};

// Block `block` of `blocks` copies its share of `count` units; copy_of(unit) is an UnitCopy.
template <typename CopyOf>
FASA_DEVICE void copy_units(int64_t count, int block, int blocks, const CopyOf& copy_of) {
  constexpr int kUnderWay = 8;
  const int64_t step = int64_t{blocks} * simt::block_threads();
  for (int64_t first = int64_t{block} * simt::block_threads() + simt::thread_index(); first < count;
       first += kUnderWay * step) {
    simt::Word16 words[kUnderWay];
    simt::Word16* to[kUnderWay];
    FASA_UNROLL
    for (int i = 0; i < kUnderWay; ++i) {
      const int64_t unit = first + i * step;
      to[i] = nullptr;
      if (unit >= count) continue;
      const UnitCopy copy = copy_of(unit);
      words[i] = *copy.from;
      to[i] = copy.to;
    }
    FASA_UNROLL
    for (int i = 0; i < kUnderWay; ++i) {
      if (to[i] != nullptr) *to[i] = words[i];
    }
  }
}

}  // namespace fasa::cuda
