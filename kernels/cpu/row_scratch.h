// Workspace of the calling thread: grows to the largest request, then stays. A task that holds it
// runs to its end before its thread takes another (no kernel nests parallel loops), so one block a
// thread is enough.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fasa::cpu {

// Aligned to 64 bytes, contents indeterminate.
std::byte* thread_scratch(int64_t bytes);

}  // namespace fasa::cpu
