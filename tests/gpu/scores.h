// Page scores on a GPU, for tests; the device interface does not expose them.
#pragma once

#include "kernels/params.h"

namespace fasa {

// Scores of all visible tokens of one head into `[group][visible]`, in memory that the GPU
// accesses; enqueued on the default stream.
void enqueue_scores(const SelectParams& params, int sequence, int kv_head, float* raw);

}  // namespace fasa
