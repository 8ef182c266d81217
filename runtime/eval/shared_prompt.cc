#include "runtime/eval/shared_prompt.h"

#include <algorithm>
#include <array>

#include "scheduler/selection/eviction.h"
#include "scheduler/selection/token_selection.h"

namespace fasa {
namespace {

// A buffer for the keys or values of a chunk of one layer. In f32, rows of every dtype survive the
// copy unchanged.
class ChunkBuffer {
 public:
  ChunkBuffer(Device& device, int64_t heads, int64_t dim)
      : heads_(heads),
        dim_(dim),
        memory_(device.allocate(
            MemorySpace::kDevice,
            static_cast<size_t>(kEvalPrefillChunk * heads * dim) * sizeof(float), "copied rows")) {}
  TensorView view(int64_t tokens) const {
    return TensorView::dense(memory_.data(), DType::kF32, tokens, heads_, dim_);
  }

 private:
  int64_t heads_, dim_;
  Buffer memory_;
};

// Copies one chunk from position `first` on, layer by layer through the same buffers, in stream
// order.
void copy_chunk(const DecodeRun& from, DecodeRun& to, int64_t first, TensorView k, TensorView v) {
  Runtime& runtime = to.runtime();
  const std::array step{StepSequence{to.id(), static_cast<int>(k.tokens), StepMode::kPrefill}};
  runtime.begin_step(step);
  try {
    for (int layer = 0; layer < runtime.geometry().storing_layers(); ++layer) {
      from.runtime().read(from.id(), layer, first, k, v, to.model().stream());
      runtime.append(layer, k, v, to.model().stream());
    }
    runtime.end_step();
  } catch (...) {
    runtime.abort_step();
    throw;
  }
}

}  // namespace

bool learns_from_prompts(const Config& config) {
  const auto selection = config.make_selection();
  return selection != nullptr && selection->make_policy() != nullptr;
}

bool SharedPrompt::copy_to(DecodeRun& run, std::span<const int32_t> ids) const {
  if (!source_) return false;
  if (!std::equal(ids.begin(), ids.end(), ids_.begin(), ids_.end())) return false;
  const Geometry& geometry = run.runtime().geometry();
  Device& device = run.model().device();
  const ChunkBuffer keys(device, geometry.kv_heads, geometry.key_dim);
  const ChunkBuffer values(device, geometry.kv_heads, geometry.value_dim);
  const auto tokens = static_cast<int64_t>(ids.size());
  for (int64_t first = 0; first < tokens; first += kEvalPrefillChunk) {
    const int64_t count = std::min<int64_t>(kEvalPrefillChunk, tokens - first);
    copy_chunk(*source_, run, first, keys.view(count), values.view(count));
  }
  device.synchronize(run.model().stream());  // before the buffers are freed
  return true;
}

void SharedPrompt::keep(const DecodeRun& run, std::span<const int32_t> ids) {
  ids_.assign(ids.begin(), ids.end());
  source_.emplace(run, static_cast<int64_t>(ids.size()));
}

}  // namespace fasa
