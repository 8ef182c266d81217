// The flags of commands that compare selections at several budgets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/config.h"

namespace fasa {

// "all": every selection that there is but the one that takes everything; "none": none; else the
// names between commas.
std::vector<std::string> selection_list(std::string_view text);

// `base` with that selection; a budget of 0 leaves what it has. Throws UsageError for an unknown
// name and ConfigError for what does not go together.
Config with_selection(const Config& base, const std::string& selection, int64_t budget);

}  // namespace fasa
