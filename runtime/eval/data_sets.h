// Finds the data sets of an evaluation in a folder: files NAME.jsonl.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fasa {

// The data sets in `asked`; if empty, all of the folder, or those in `known` if it is not empty, by
// name. `task` is named in errors. Throws UsageError for a missing folder name or an unknown data
// set, InputError for a folder that cannot be read or has no data set.
std::vector<std::string> data_sets(const std::string& task, const std::string& folder,
                                   const std::vector<std::string>& asked,
                                   std::span<const std::string_view> known);

}  // namespace fasa
