#include "kernels/prefill_work.h"

#include <algorithm>

namespace fasa {

KernelWork prefill_work(const CacheLayout& layout, const PrefillWave& wave, DType out) {
  int64_t begin = wave.begin_page * kPageTokens;
  if (wave.window > 0) begin = std::max(begin, wave.start + 1 - wave.window);
  const int64_t end = std::min(wave.end_page * kPageTokens, wave.start + wave.tokens);
  KernelWork work;
  work.device_bytes = rows_bytes(layout, std::max<int64_t>(0, end - begin) * layout.kv_heads);
  const int states = (wave.first ? 0 : 1) + (wave.last ? 0 : 1);
  work.device_bytes += static_cast<uint64_t>(states) * state_bytes(layout, wave.tokens);
  if (wave.last) work.device_bytes += output_bytes(layout, wave.tokens * layout.query_heads(), out);
  const int64_t pairs = causal_pairs(wave.start, wave.tokens, wave.window, begin, end);
  work.operations =
      static_cast<uint64_t>(pairs * layout.query_heads()) * pair_operations(layout, out);
  return work;
}

KernelWork prefill_work(const PrefillParams& params) {
  KernelWork work;
  for (int i = 0; i < params.step.count; ++i) {
    const SequenceDesc& sequence = params.step.sequences[i];
    if (sequence.mode != StepMode::kPrefill) continue;
    const KernelWork one = prefill_work(params.step.layout,
                                        {.start = sequence.start,
                                         .tokens = sequence.tokens,
                                         .window = params.window,
                                         .begin_page = params.begin_page,
                                         .end_page = params.end_page,
                                         .first = params.first_wave,
                                         .last = params.last_wave},
                                        params.out.dtype);
    work.device_bytes += one.device_bytes;
    work.operations += one.operations;
  }
  return work;
}

}  // namespace fasa
