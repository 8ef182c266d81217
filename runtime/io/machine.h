// The machine that this process runs on, as `fasa info` shows it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace fasa {

// Throws UsageError when FASA_TARGET names no instruction set that this processor runs: before any
// work, not in the middle of it.
void require_usable_target();

// topology, devices, targets (instruction sets of the kernels), target (in use).
nlohmann::json machine_to_json();
// The same for people, several lines.
std::string describe_machine();

}  // namespace fasa
