// The selections by name. To add one: a class in a file of its own and a line in
// selection_table.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "scheduler/selection/selection_options.h"
#include "scheduler/selection/token_selection.h"

namespace fasa {

// An index into the table. Named are those that the pipeline itself knows; find_selection() has the
// others.
enum class SelectionKind : uint8_t { kFasa, kFull };

std::optional<SelectionKind> find_selection(std::string_view name);
std::string_view selection_name(SelectionKind kind);
// All names, "fasa, full, ...": for help and errors.
const std::string& selection_names();
// Whether this build has comparison selections (FASA_LAB).
bool has_comparison_selections();

// Null: the pipeline does it by itself, on every device. Anything else runs on the cpu device only.
std::shared_ptr<const TokenSelection> make_selection(SelectionKind kind,
                                                     const SelectionOptions& options);

}  // namespace fasa
