// The data sets of a folder that an evaluation runs on: files NAME.jsonl.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fasa {

// Those `asked` for; else all that are there, of `known` ones where there are any, by name. `task`
// stands in the errors. Throws UsageError for no folder and for an unknown name, InputError for a
// folder that cannot be read or has none.
std::vector<std::string> data_sets(const std::string& task, const std::string& folder,
                                   const std::vector<std::string>& asked,
                                   std::span<const std::string_view> known);

}  // namespace fasa
