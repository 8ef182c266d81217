// A call of append or attend, as the executor's source files share it.
#pragma once

#include "scheduler/step/step_executor.h"

namespace fasa {

struct StepExecutor::Call {
  const StepContext& step;
  const StepScratch& scratch;
  const LayerSettings& settings;
  RowCall rows;
  RowTransfers& transfers;

  int layer() const { return rows.layer; }
  StreamView compute() const { return rows.compute; }
  OperationTag tag() const { return rows.tag(); }
  const StepParams& params() const { return rows.params; }
  const LayerPlan& plan() const { return step.plan.layer(rows.layer); }
};

}  // namespace fasa
