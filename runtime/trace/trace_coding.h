// The steps of a selection trace as streams of bytes (docs/trace-format.md): each head's set is
// coded by what changed since the last step, each prediction by what differs from the set.
#pragma once

#include <vector>

#include "runtime/trace/byte_streams.h"
#include "runtime/trace/selection_trace.h"

namespace fasa {

size_t stream_count(const TraceShape& shape);
std::vector<StreamWriter> encode_steps(const SelectionTrace& trace);
// Adds `steps` steps. Throws InputError.
void decode_steps(std::vector<StreamReader>& streams, int steps, SelectionTrace& trace);

}  // namespace fasa
