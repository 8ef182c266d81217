// Runs evaluations: examples one by one, each kept as soon as it is there.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/eval/against_full.h"
#include "runtime/eval/eval_task.h"
#include "runtime/eval/result_log.h"

namespace fasa {

// One way of selecting, of those that a command compares.
struct EvalMethod {
  std::string name;
  Config config;
  std::vector<int16_t> slice_dims;
};

// What all tasks and methods of a command share.
struct EvalSubject {
  Model* model = nullptr;
  std::string model_dir;
  RowDType row_dtype = DType::kF32;  // of methods that have none of their own
  std::string results;               // folder
  ResultLog::Begin begin = ResultLog::Begin::kResume;

  RowDType rows_of(const EvalMethod& method) const {
    return method.config.placement.row_dtype.value_or(row_dtype);
  }
  // What the results depend on beside the task.
  nlohmann::json setup(const EvalMethod& method) const;
};

struct TaskResult {
  std::string task;
  std::string path;  // of the results
  nlohmann::json setup;
  std::vector<nlohmann::json> records;  // of the examples asked for
  int64_t resumed = 0;                  // of those, there before
  double seconds = 0;                   // spent on the others
  Summary summary = summarize(Metric::kAccuracy, {});
  std::optional<AgainstFull> against_full;  // where full attention is among the methods
  std::string note;                         // of what was left out; mostly ""
};

// Makes the results' folder. Throws UsageError.
void make_results_folder(const std::string& path);

// Runs the first `examples` examples of the task that have no result yet, each with all methods,
// one after the other: a text is prefilled once for all that have rows of one dtype. Full
// attention, the first of several, goes first, and the others' predictions are compared with it.
// One result a method. Throws what they throw; what was done until then is kept.
std::vector<TaskResult> run_task(EvalTask& task, size_t examples, const EvalSubject& subject,
                                 std::span<const EvalMethod> methods);

}  // namespace fasa
