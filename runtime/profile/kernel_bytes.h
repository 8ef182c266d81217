// Link bytes of kernels, for devices that do not report them.
#pragma once

#include <vector>

#include "offload/timeline/timeline.h"
#include "runtime/api/kv_metrics.h"

namespace fasa {

// Assigns the bytes of the step's counters to gathers and write-backs without bytes, by layer and
// cause, in proportion to their durations. Assumes that they use the link from start to end.
void add_kernel_bytes(const FetchMetrics& fetch, std::vector<TimelineEntry>& entries);

}  // namespace fasa
