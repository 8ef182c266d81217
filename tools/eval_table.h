// All results of one model in a folder, in the layout of a paper's table: methods x tasks.
#pragma once

#include <string>

#include "tools/eval_run.h"

namespace fasa {

// Reads every file of results in the folder that is of the same model; files that are no results
// are left out with a warning. Perplexity as it is, accuracy and score in per cent; a cell with
// fewer examples than the best filled one of its column has an asterisk.
std::string results_table(const std::string& folder, const std::string& model_hash);

}  // namespace fasa
