// The token-by-token calls of a model's own work, on the processor.
#pragma once

#include "kernels/calls.h"

namespace fasa::cpu {

// Runs in the caller's oneTBB arena; complete on return. A token's bits depend only on the token.
// The reported work is only that of the angles, which leave the caches; data between two products
// stays in the caches, and products count it themselves (Matrix::work_bytes).
KernelWork run_on_rows(const RowCalls::Call& call);

}  // namespace fasa::cpu
