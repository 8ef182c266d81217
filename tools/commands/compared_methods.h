// The flags of commands that compare selections at several budgets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/config.h"

namespace fasa {

// "all": every selection except `full`; "none": none; else a comma-separated list of names.
std::vector<std::string> selection_list(std::string_view text);

// Tokens attended to exactly, 0 = as configured, and low-bit tokens in addition.
struct ComparedBudget {
  int64_t tokens = 0;
  std::optional<TokenCount> low_bit = {};  // none: as configured; auto is 0 if `tokens` is given
  std::optional<SliceDType> codes = {};    // of keys and values; none: as configured
};

// "128", with low-bit tokens "128+512" or "128+all", and with their codes "128+all:int4". Throws
// UsageError naming the flag.
ComparedBudget parse_budget(const std::string& text, std::string_view flag);

// `base` with that selection and budget; only fasa has a low-bit set. Throws UsageError for an
// unknown name and ConfigError for contradicting settings.
Config with_selection(const Config& base, const std::string& selection,
                      const ComparedBudget& budget);

// `base` with each of the row dtypes, or `base` alone if `names` is empty. Throws UsageError.
std::vector<Config> with_row_dtypes(const Config& base, const std::vector<std::string>& names);

}  // namespace fasa
