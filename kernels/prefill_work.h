// The work of exact causal attention, which is bound by operations, not by bytes.
#pragma once

#include "kernels/kernel_work.h"
#include "kernels/params.h"

namespace fasa {

// A wave of exact causal attention: key pages [begin_page, end_page), new tokens [start, start +
// tokens). Rows are counted once: all blocks of queries read a page at about the same time.
struct PrefillWave {
  int64_t start = 0;
  int64_t tokens = 0;
  int64_t window = 0;
  int64_t begin_page = 0;
  int64_t end_page = 0;
  bool first = true;  // states start empty
  bool last = true;   // results are written
};

// The work of one sequence, all heads. `out`: of the results.
KernelWork prefill_work(const CacheLayout& layout, const PrefillWave& wave, DType out);

// The work of a call; reads descriptors in device memory.
KernelWork prefill_work(const PrefillParams& params);

}  // namespace fasa
