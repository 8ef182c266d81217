// Runs evaluations example by example and stores each result at once.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/eval/against_full.h"
#include "runtime/eval/result_log.h"
#include "runtime/eval/tasks/eval_task.h"

namespace fasa {

// One of the methods that a command compares.
struct EvalMethod {
  std::string name;
  Config config;
  std::vector<int16_t> slice_dims;
};

// Parameters common to all tasks and methods of a command.
struct EvalSubject {
  Model* model = nullptr;
  std::string model_dir;
  RowDType row_dtype = DType::kF32;  // for methods that set none
  std::string results;               // folder
  ResultLog::Begin begin = ResultLog::Begin::kResume;

  RowDType rows_of(const EvalMethod& method) const {
    return method.config.placement.row_dtype.value_or(row_dtype);
  }
  // Everything except the task that the results depend on.
  nlohmann::json setup(const EvalMethod& method) const;
};

struct TaskResult {
  std::string task;
  std::string path;  // of the results
  nlohmann::json setup;
  std::vector<nlohmann::json> records;  // of the requested examples
  int64_t resumed = 0;                  // number of records read from the file
  double seconds = 0;                   // running the other examples
  Summary summary = summarize(Metric::kAccuracy, {});
  std::optional<AgainstFull> against_full;  // none if nothing could be compared
  std::string note;                         // why something was left out, or ""
};

// Computes the summaries of a task's results, and compares them with those of full attention, which
// has index `full`; none: not among them.
void summarize_results(const EvalTask& task, std::vector<TaskResult>& results,
                       std::optional<size_t> full);
std::optional<size_t> index_of_full(std::span<const EvalMethod> methods);

// Creates the folder for results. Throws UsageError.
void make_results_folder(const std::string& path);

// Runs the first `examples` examples of the task that have no result yet, each with all methods in
// turn: methods with the same row dtype share the prefill of a text. Full attention runs first, and
// the others' predictions are compared with it. Returns one result per method. Throws the methods'
// errors; finished results remain stored.
std::vector<TaskResult> run_task(EvalTask& task, size_t examples, const EvalSubject& subject,
                                 std::span<const EvalMethod> methods);

}  // namespace fasa
