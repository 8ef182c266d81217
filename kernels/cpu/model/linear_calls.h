// The calls of layers with linear attention, on the processor.
#pragma once

#include "kernels/calls.h"
#include "kernels/target.h"

namespace fasa::cpu {

// Runs in the caller's oneTBB arena; complete on return. A token's bits depend on the tokens before
// it and on which of them were prefilled and which decoded, never on the parts they came in.
// Returns the bytes of states read and written.
uint64_t run_linear(const LinearCall& call, Target target = active_target());

}  // namespace fasa::cpu
