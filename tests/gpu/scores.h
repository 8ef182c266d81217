// Page scores on a GPU, for tests: what no call of the device gives.
#pragma once

#include "kernels/params.h"

namespace fasa {

// Scores of all visible tokens of one head, into [group][visible] of memory that the GPU reaches;
// enqueued on the default stream.
void enqueue_scores(const SelectParams& params, int sequence, int kv_head, float* raw);

}  // namespace fasa
