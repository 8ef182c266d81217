// All results of one model in a folder as a table, methods x tasks.
#pragma once

#include <string>

#include "tools/commands/eval_run.h"

namespace fasa {

// Reads all files of results in the folder that belong to the same model; skips other files with a
// warning. Accuracy and score are in per cent. An asterisk marks cells with fewer examples than the
// fullest cell of the column.
std::string results_table(const std::string& folder, const std::string& model_hash);

}  // namespace fasa
