// Writes new rows back to host memory: local ones from the row blocks, decode's others from the
// protected rows, prefill's from the write-back buffer.

#include <algorithm>
#include <cstring>

#include "kernels/cpu/kernels.h"
#include "kernels/kernel_work.h"
#include "runtime/base/parallel.h"

namespace fasa::cpu {
namespace {

void write_back_page(const StepParams& step, const SequenceDesc& sequence, int head, int page) {
  const CacheLayout& layout = step.layout;
  const int begin = std::max(sequence.start, page * kPageTokens);
  const int end = std::min(sequence.end(), (page + 1) * kPageTokens);
  const int64_t offset = layout.row_offset(step.layer, head, begin % kPageTokens);
  std::byte* home = sequence.home_block(page) + offset;
  const int64_t row_bytes = layout.row.bytes();
  const bool local = sequence.access == RowAccess::kLocal;
  if (local || sequence.mode == StepMode::kPrefill) {
    std::memcpy(
        home,
        local ? sequence.row_blocks[page] + offset : step.write_back_row(sequence, head, begin),
        static_cast<size_t>((end - begin) * row_bytes));
    return;
  }
  for (int position = begin; position < end; ++position, home += row_bytes) {
    const int slot = layout.protected_slot(position);
    std::memcpy(home, sequence.protected_rows + layout.protected_offset(step.layer, head, slot),
                static_cast<size_t>(row_bytes));
  }
}

}  // namespace

template <>
KernelWork run(const WriteBackParams& params) {
  const StepParams& step = params.step;
  const int kv_heads = step.layout.kv_heads;
  parallel_for(0, step.count * kv_heads, [&](int task) {
    const SequenceDesc& sequence = step.sequences[task / kv_heads];
    if (sequence.tokens == 0) return;
    for (int page = sequence.start / kPageTokens; page <= (sequence.end() - 1) / kPageTokens;
         ++page) {
      write_back_page(step, sequence, task % kv_heads, page);
    }
  });
  KernelWork work;
  for (int i = 0; i < step.count; ++i) {
    work.d2h_bytes += rows_bytes(step.layout, int64_t{step.sequences[i].tokens} * kv_heads);
  }
  return work;
}

}  // namespace fasa::cpu
