// The results of `fasa eval`, as JSON and as a table.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/commands/eval_run.h"

namespace fasa {

// The results of one method.
struct MethodReport {
  std::string method;
  Config config;
  std::vector<TaskResult> tasks;
  std::optional<AgainstFull> against_full = {};  // over all tasks, if there are several

  // Over all tasks: examples are pooled, except for scores, where each task counts once.
  Summary total() const;
};

struct EvalReport {
  std::string task;  // as on the command line
  std::string model;
  std::vector<MethodReport> methods;
  std::vector<std::string> notes;  // such as skipped lines of data
  int64_t skipped = 0;             // number of skipped lines
};

// Compares each method with the one at `full` over all tasks together.
void compare_totals(EvalReport& report, std::optional<size_t> full);

// For one method, its members are at the top level. For several, an array "methods" of such
// objects.
nlohmann::json to_json(const EvalReport& report);
std::string to_table(const EvalReport& report);

}  // namespace fasa
