// Turns the options of `fasa eval` and `python -m fasa eval` into tasks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/eval/tasks/eval_task.h"
#include "runtime/eval/tasks/math_task.h"
#include "runtime/text/tokenizer.h"

namespace fasa {

struct EvalOptions {
  std::string task;
  std::string model_dir;
  std::vector<std::string> texts;
  std::vector<int64_t> contexts;    // empty: 4096, or the model's positions if fewer
  std::optional<int> examples;      // none: the task's default
  std::optional<int64_t> stride;    // ppl; none: a quarter of the context
  bool one_pass = false;            // ppl
  std::optional<int> facts;         // needle: 4, turns: 5
  std::vector<double> depths = {};  // needle; empty: the task's default
  uint64_t seed = 1;
  bool prefill_questions = false;
  std::vector<int> records = {8};       // extract
  std::string data;                     // folder of the files of longbench, ruler, math
  std::vector<std::string> tasks = {};  // names; empty: all of them, or all in the folder
  MathOptions math = {};                // `context` is ignored: it comes from `contexts`
};

struct PlannedTask {
  std::unique_ptr<EvalTask> task;
  size_t examples = 0;                     // to run
  std::vector<std::string> problems = {};  // skipped lines of its file
  bool scored_apart = false;               // by the separate program fasa_metrics
};

// Names of the tasks, as for a user: "ppl, needle, ...".
std::string eval_task_names();

// `tokenizer` must outlive the tasks; may be null. Throws UsageError (unknown task, flags) and
// InputError (texts), before a model is loaded.
std::vector<PlannedTask> plan_tasks(const EvalOptions& flags, int64_t max_positions,
                                    const text::TextCoder* tokenizer);

}  // namespace fasa
