// A call of append or attend, as the pipeline's source files share it.
#pragma once

#include <cstdint>

#include "scheduler/step_pipeline.h"

namespace fasa {

struct StepPipeline::Call {
  const StepBatch& step;
  const StepScratch& scratch;
  int layer;
  StreamView compute;
  Cause cause = Cause::kCompute;  // of the work that it enqueues

  const LayerPlan& plan() const { return step.plan.layer(layer); }
  OperationTag tag() const { return tag_of(layer, cause); }
  const LayerSettings& settings(const StepSettings& all) const { return all.layer(layer); }
  int64_t row_offset(const StepSettings& all, int kv_head, int slot) const {
    return all.layout_of(layer).row_offset(settings(all).index, kv_head, slot);
  }
};

}  // namespace fasa
