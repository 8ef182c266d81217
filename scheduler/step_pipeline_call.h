// What the pipeline's files share: a call of append or attend.
#pragma once

#include <algorithm>
#include <cstdint>

#include "scheduler/step_pipeline.h"

namespace fasa {

struct StepPipeline::Call {
  const StepBatch& step;
  const StepScratch& scratch;
  int layer;
  StreamView compute;
  Cause cause = Cause::kCompute;  // of what it enqueues there

  OperationTag tag() const { return tag_of(layer, cause); }
  const LayerSettings& settings(const StepSettings& all) const { return all.layer(layer); }
};

// The first position that a token at `position` sees.
inline int32_t first_visible(int32_t position, int window) {
  return window > 0 ? std::max(0, position + 1 - window) : 0;
}

}  // namespace fasa
