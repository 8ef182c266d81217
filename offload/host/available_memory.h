// What the system could still give without swapping.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fasa {

// Bytes that this process may still take: what the kernel calls available, or what is left of the
// process's control group where that is less. None where neither can be read.
std::optional<uint64_t> available_host_bytes();

// The parts of it: the text of /proc/meminfo, and of memory.max and memory.current of a control group
// ("max" = no limit). None where the text does not say.
std::optional<uint64_t> available_in(const std::string& meminfo);
std::optional<uint64_t> left_of_group(const std::string& most, const std::string& current);

}  // namespace fasa
