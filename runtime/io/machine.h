// The machine that this process runs on, as `fasa info` shows it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace fasa {

// Throws UsageError when FASA_TARGET names no instruction set that this processor runs: before any
// work, not in the middle of it.
void require_usable_target();

// Bytes that the system could still give without swapping; none where it does not say.
std::optional<uint64_t> available_memory();

// topology, devices, targets (instruction sets of the kernels), target (in use).
nlohmann::json machine_to_json();
// The same for people, several lines.
std::string describe_machine();

}  // namespace fasa
