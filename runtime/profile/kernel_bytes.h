// What kernels of a device that does not say so carried over the link.
#pragma once

#include <vector>

#include "offload/timeline/timeline.h"
#include "runtime/api/kv_metrics.h"

namespace fasa {

// Gathers and write-backs of a step that came without bytes get those that its counters tell, by
// layer and cause, in shares by their durations; the link is taken to be theirs from start to end.
void add_kernel_bytes(const FetchMetrics& fetch, std::vector<TimelineEntry>& entries);

}  // namespace fasa
