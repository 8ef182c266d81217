// From what `fasa eval` was asked for to the tasks that it runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/eval/eval_task.h"
#include "runtime/eval/math_task.h"
#include "runtime/llm/model_config.h"
#include "runtime/text/tokenizer.h"

namespace fasa {

struct EvalOptions {
  std::string task;
  std::string model_dir;
  std::vector<std::string> texts;
  std::vector<int64_t> contexts;    // none: 4096, or the model's positions where they are fewer
  std::optional<int> examples;      // none: the task's own
  std::optional<int64_t> stride;    // ppl; none: a quarter of the context
  bool one_pass = false;            // ppl
  int facts = 4;                    // needle
  std::vector<double> depths = {};  // needle; none: the task's own
  uint64_t seed = 1;
  std::string data;                     // longbench, math: their folder
  std::vector<std::string> tasks = {};  // of them; none: all whose files are there
  MathOptions math = {};                // but for its context
};

struct PlannedTask {
  std::unique_ptr<EvalTask> task;
  size_t examples = 0;                     // to run
  std::vector<std::string> problems = {};  // lines of its file that are left out
  bool scored_apart = false;               // by the metrics' own program
};

// `tokenizer` outlives the tasks; may be null. Throws UsageError (unknown task, flags) and
// InputError (texts), before any model is loaded.
std::vector<PlannedTask> plan_tasks(const EvalOptions& flags, const ModelConfig& model,
                                    const text::TextCoder* tokenizer);

}  // namespace fasa
