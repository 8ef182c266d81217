// The flags of commands that compare selections at several budgets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/config.h"

namespace fasa {

// "all": every selection that there is but the one that takes everything; "none": none; else the
// names between commas.
std::vector<std::string> selection_list(std::string_view text);

// Tokens of a set, 0 = as configured, and of the low-bit set beside it.
struct ComparedBudget {
  int64_t tokens = 0;
  std::optional<int64_t> low_bit = {};  // none: as configured, and beside `tokens` auto is none
};

// "128", or "128+512" with low-bit tokens. Throws UsageError naming the flag.
ComparedBudget parse_budget(const std::string& text, std::string_view flag);

// `base` with that selection and budget; other selections than fasa have no low-bit set. Throws
// UsageError for an unknown name and ConfigError for what does not go together.
Config with_selection(const Config& base, const std::string& selection,
                      const ComparedBudget& budget);

// `base` over each kind of rows, or `base` where none is named. Throws UsageError.
std::vector<Config> with_row_dtypes(const Config& base, const std::vector<std::string>& names);

}  // namespace fasa
