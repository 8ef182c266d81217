// The machine that this process runs on, as `fasa info` shows it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace fasa {

// Throws UsageError if FASA_TARGET names an instruction set that this CPU does not have. Call it at
// startup, so that the error does not come in the middle of work.
void require_usable_target();
std::string kernel_target();  // the instruction set in use; throws the same

// Bytes that the system can provide without swapping; none if unknown.
std::optional<uint64_t> available_memory();

// topology, devices, targets (instruction sets of the kernels), target (in use).
nlohmann::json machine_to_json();
// The same as text for users, several lines.
std::string describe_machine();
// "2.5 processors, 4.00 GiB of memory": limits of the process's control group; "": none.
std::string group_limits();

}  // namespace fasa
