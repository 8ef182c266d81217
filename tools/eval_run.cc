#include "tools/eval_run.h"

#include <fmt/format.h>

#include <cctype>
#include <chrono>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/calibrate/model_hash.h"
#include "runtime/io/hash.h"
#include "runtime/lab/eval/shared_prompt.h"
#include "tools/eval_method.h"
#include "tools/progress.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

std::string dims_hash(const std::vector<int16_t>& dims) {
  return fmt::format("fnv1a:{:016x}", fnv1a(fmt::format("{}", fmt::join(dims, " "))));
}

// Letters, digits and dots; everything else a dash, never two of them.
std::string file_part(const std::string& text) {
  std::string part;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.') {
      part += c;
    } else if (!part.empty() && part.back() != '-') {
      part += '-';
    }
  }
  return part;
}

// The path has whatever else the results depend on as a hash: other setups are other files.
std::string results_path(const std::string& folder, const Json& setup) {
  const std::string name = fmt::format(
      "{}-{}-{:08x}.jsonl", file_part(setup.at("task").get<std::string>()),
      file_part(setup.at("method").get<std::string>()), fnv1a(setup.dump()) & 0xffffffffu);
  return (std::filesystem::path(folder) / name).string();
}

// The examples of a task with one method.
class MethodRun {
 public:
  MethodRun(EvalTask& task, const EvalSubject& subject, const EvalMethod& method)
      : task_(task),
        model_(*subject.model),
        result_(begin(task, subject, method)),
        log_(result_.path, result_.setup, subject.begin),
        runtime_(model_.device(), method.config, model_.config().geometry(), subject.row_dtype,
                 method.slice_dims, task.longest()),
        learns_from_prompts_(learns_from_prompts(method.config)) {}

  // Runs it where it has no result yet.
  void take(size_t example, SharedPrompt* prompt) {
    const std::string id = task_.id(example);
    if (const Json* record = log_.find(id)) {
      result_.records.push_back(*record);
      ++result_.resumed;
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    Json record = task_.run(example, {model_, runtime_, learns_from_prompts_ ? nullptr : prompt});
    record["id"] = id;
    log_.add(record);
    result_.records.push_back(std::move(record));
    const auto spent = std::chrono::steady_clock::now() - start;
    result_.seconds += std::chrono::duration<double>(spent).count();
  }

  TaskResult result() const {
    TaskResult result = result_;
    result.summary = summarize(task_.metric(), result.records);
    return result;
  }

 private:
  static TaskResult begin(EvalTask& task, const EvalSubject& subject, const EvalMethod& method) {
    TaskResult result;
    result.task = task.name();
    result.setup = subject.setup(method);
    result.setup["task"] = task.name();
    result.setup["metric"] = metric_name(task.metric());
    result.setup["task_setup"] = task.setup();
    result.path = results_path(subject.results, result.setup);
    return result;
  }

  EvalTask& task_;
  Model& model_;
  TaskResult result_;
  ResultLog log_;
  Runtime runtime_;
  bool learns_from_prompts_;
};

}  // namespace

Json EvalSubject::setup(const EvalMethod& method) const {
  const auto folder =
      std::filesystem::absolute(model_dir.empty() ? "." : model_dir).lexically_normal();
  const auto name = folder.has_filename() ? folder.filename() : folder.parent_path().filename();
  return {{"model", name.string()},
          {"model_hash", model_hash(model->fingerprint())},
          {"dtype", dtype_name(model->dtype())},
          {"row_dtype", dtype_name(row_dtype)},
          {"method", method.name},
          {"selection", method_setup(method.config)},
          {"slice_dims", dims_hash(method.slice_dims)}};
}

void make_results_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (std::filesystem::is_directory(path)) return;
  throw UsageError(fmt::format("--results = \"{}\": {}; give a folder that can be made or is there",
                               path, error ? error.message() : "no folder"));
}

std::vector<TaskResult> run_task(EvalTask& task, size_t examples, const EvalSubject& subject,
                                 std::span<const EvalMethod> methods) {
  std::vector<std::unique_ptr<MethodRun>> runs;
  for (const EvalMethod& method : methods) {
    runs.push_back(std::make_unique<MethodRun>(task, subject, method));
  }
  SharedPrompt prompt;
  Progress progress(task.name());
  for (size_t i = 0; i < examples; ++i) {
    for (size_t m = 0; m < runs.size(); ++m) {
      progress.update(static_cast<int64_t>(i * runs.size() + m),
                      static_cast<int64_t>(examples * runs.size()));
      runs[m]->take(i, runs.size() > 1 ? &prompt : nullptr);
    }
    prompt.forget();
  }
  std::vector<TaskResult> results;
  for (const auto& run : runs) results.push_back(run->result());
  return results;
}

}  // namespace fasa
