// Memory that the system can still provide without swapping.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fasa {

// Bytes that this process may still allocate: the kernel's MemAvailable, or the rest of the
// process's control group if that is less. Empty if neither can be read.
std::optional<uint64_t> available_host_bytes();

// MemAvailable in the text of /proc/meminfo. Empty if it is not there.
std::optional<uint64_t> available_in(const std::string& meminfo);

}  // namespace fasa
