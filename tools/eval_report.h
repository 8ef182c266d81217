// What `fasa eval` found, as JSON, as a table and as one HTML page.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/eval_run.h"

namespace fasa {

// What one method came to.
struct MethodReport {
  std::string method;
  Config config;
  std::vector<TaskResult> tasks;

  // Over all tasks: pooled, except scores, where each task counts once.
  Summary total() const;
};

struct EvalReport {
  std::string task;  // as on the command line
  std::string model;
  std::vector<MethodReport> methods;
  std::vector<std::string> notes;  // lines of data left out and the like
  int64_t skipped = 0;             // such lines
};

// One line: KL, same best token, perplexity, with intervals.
std::string against_full_text(const AgainstFull& against);

// One method: its members at the top level. Several: an array "methods" of such objects.
nlohmann::json to_json(const EvalReport& report);
std::string to_table(const EvalReport& report);
// With the accuracy grid of planted facts, depth x length.
std::string to_html(const EvalReport& report);

}  // namespace fasa
