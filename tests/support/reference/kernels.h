// The scalar reference: plain loops in f32/f64, the oracle of every kernel's tests. The parameters
// are those of the kernels.
#pragma once

#include "kernels/params.h"

namespace fasa::reference {

void append(const AppendParams& params);
void write_back(const WriteBackParams& params);
void restore(const RestoreParams& params);
void select(const SelectParams& params);
void resolve(const ResolveParams& params);
void claim_slots(const ClaimSlotsParams& params);
void gather(const GatherParams& params);
void fetch(const FetchParams& params);
void attend(const AttendParams& params);
void prefill(const PrefillParams& params);

}  // namespace fasa::reference
