#include <cstring>

#include "tests/support/reference/kernels.h"

namespace fasa::reference {

void gather(const GatherParams& params) {
  const int heads = params.count * params.layout.kv_heads;
  for (int head = params.first; head < heads; head += params.stride) {
    for (int i = 0; i < params.fetch_counts[head]; ++i) {
      const FetchItem& item = params.fetches[int64_t{head} * params.wave + i];
      std::memcpy(item.destination, item.source, static_cast<size_t>(params.layout.row.bytes()));
    }
  }
}

void fetch(const FetchParams& params) {
  const ResolveParams& wave = params.resolve;
  const StepParams& step = wave.step;
  resolve(wave);
  for (int i = 0; i < step.count * step.head_count(); ++i) {
    gather({step.layout, step.count, wave.end - wave.begin, wave.fetches, wave.fetch_counts,
            step.head_index(i), step.count * step.layout.kv_heads});
  }
}

}  // namespace fasa::reference
