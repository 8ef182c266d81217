// The launchers of a model's own work (model_params.h), of devices whose memory host code cannot
// reach. They enqueue in stream order, allocate nothing and wait for nothing.
#pragma once

#include "kernels/model_params.h"
#include "runtime/base/stream_view.h"

namespace fasa {

struct ModelKernelTable {
  void (*project)(const ProjectParams&, StreamView);
  void (*add_norm)(const AddNormParams&, StreamView);
  void (*angles)(const AnglesParams&, StreamView);
  void (*heads)(const HeadsParams&, StreamView);
  void (*activate)(const ActivateParams&, StreamView);
  void (*add_bias)(const AddBiasParams&, StreamView);
  uint64_t (*project_scratch)();  // bytes of device memory that a projection works in
};

}  // namespace fasa
