// The calls of a model's own work that go token by token, by the processor.
#pragma once

#include "kernels/calls.h"

namespace fasa::cpu {

// In the caller's oneTBB arena, done on return; a token's bits depend on nothing but the token. The
// work is what leaves the caches: angles. What lies between two products stays there, and products
// count it with their own (Matrix::work_bytes).
KernelWork run_on_rows(const RowCalls::Call& call);

}  // namespace fasa::cpu
