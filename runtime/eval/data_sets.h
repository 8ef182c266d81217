// Finds the data sets of an evaluation in a folder: files NAME.jsonl, NAME.json or
// NAME/validation.jsonl.
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

// The file of a data set: the one of these that exists, else NAME.jsonl.
std::string data_file(const std::string& folder, const std::string& name);

// Throws UsageError with the nearest known name if one is not known.
void require_known(const std::vector<std::string>& asked, std::span<const std::string_view> known);

}  // namespace fasa
