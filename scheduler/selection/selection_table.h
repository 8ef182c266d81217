// The selections by name. To add one, write a class in a file of its own and add a line to
// selection_table.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "scheduler/selection/token_selection.h"

namespace fasa {

// An index into the table. Only the kinds that the executor itself knows have a name here;
// find_selection() finds the others.
enum class SelectionKind : uint8_t { kFasa, kFull };

std::optional<SelectionKind> find_selection(std::string_view name);
std::string_view selection_name(SelectionKind kind);
// All names, "fasa, full, ...": for help and errors.
const std::string& selection_names();
// True if this build has the comparison selections (FASA_LAB).
bool has_comparison_selections();

// Returns null for a kind that the executor runs itself, on every device. All others need the cpu
// device.
std::shared_ptr<const TokenSelection> make_selection(SelectionKind kind);

}  // namespace fasa
