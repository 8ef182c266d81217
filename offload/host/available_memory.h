// Memory that the system can still provide without swapping.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fasa {

// Bytes that this process may still allocate: the kernel's MemAvailable, or the rest of the
// process's control group if that is less. Empty if neither can be read.
std::optional<uint64_t> available_host_bytes();

// Its parts: from the text of /proc/meminfo, and of memory.max and memory.current of a control
// group ("max": no limit). Empty if the text lacks the value.
std::optional<uint64_t> available_in(const std::string& meminfo);
std::optional<uint64_t> left_of_group(const std::string& most, const std::string& current);

}  // namespace fasa
