// The launchers of the CUDA device, one for each entry of KernelTable: params.h says what each of
// them does. They enqueue on the stream, wait for nothing and read lengths on the device only:
// what they start depends on the host's arguments alone, so that a step can be captured as a CUDA
// graph. Throw DeviceError where a launch is refused.
#pragma once

#include "kernels/params.h"
#include "kernels/table.h"

namespace fasa::cuda {

void append(const AppendParams& params, StreamView stream);
void write_back(const WriteBackParams& params, StreamView stream);
void restore(const RestoreParams& params, StreamView stream);
void select(const SelectParams& params, StreamView stream);
uint64_t select_scratch(const CacheLayout& layout, int count, int set_capacity);
void resolve(const ResolveParams& params, StreamView stream);
void speculate(const SpeculateParams& params, StreamView stream);
void gather(const GatherParams& params, StreamView stream);
void attend(const AttendParams& params, StreamView stream);
void prefill(const PrefillParams& params, StreamView stream);
void read_rows(const ReadRowsParams& params, StreamView stream);

}  // namespace fasa::cuda
