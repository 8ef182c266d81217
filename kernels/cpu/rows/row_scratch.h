// Workspace of the calling thread; grows to the largest request and stays. A task that uses it ends
// before its thread takes another (no kernel nests parallel loops), so one block per thread
// suffices.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fasa::cpu {

// Aligned to 64 bytes, contents indeterminate.
std::byte* thread_scratch(int64_t bytes);

}  // namespace fasa::cpu
