#include "tools/eval_run.h"

#include <fmt/format.h>

#include <cctype>
#include <chrono>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/hash.h"
#include "runtime/model_hash.h"
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

}  // namespace

std::string EvalSubject::method() const { return method_name(config, model->config().geometry()); }

Json EvalSubject::setup() const {
  const auto folder =
      std::filesystem::absolute(model_dir.empty() ? "." : model_dir).lexically_normal();
  const auto name = folder.has_filename() ? folder.filename() : folder.parent_path().filename();
  return {{"model", name.string()},
          {"model_hash", model_hash(model->fingerprint())},
          {"dtype", dtype_name(model->dtype())},
          {"row_dtype", dtype_name(row_dtype)},
          {"method", method()},
          {"selection", method_setup(config)},
          {"slice_dims", dims_hash(slice_dims)}};
}

void make_results_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (std::filesystem::is_directory(path)) return;
  throw UsageError(fmt::format("--results = \"{}\": {}; give a folder that can be made or is there",
                               path, error ? error.message() : "no folder"));
}

TaskResult run_task(EvalTask& task, size_t examples, const EvalSubject& subject) {
  TaskResult result;
  result.task = task.name();
  result.setup = subject.setup();
  result.setup["task"] = task.name();
  result.setup["metric"] = metric_name(task.metric());
  result.setup["task_setup"] = task.setup();
  result.path = results_path(subject.results, result.setup);
  ResultLog log(result.path, result.setup, subject.begin);
  Model& model = *subject.model;
  Runtime runtime(model.device(), subject.config, model.config().geometry(), subject.row_dtype,
                  subject.slice_dims, task.longest());
  Progress progress(task.name());
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < examples; ++i) {
    progress.update(static_cast<int64_t>(i), static_cast<int64_t>(examples));
    const std::string id = task.id(i);
    if (const Json* record = log.find(id)) {
      result.records.push_back(*record);
      ++result.resumed;
      continue;
    }
    Json record = task.run(i, model, runtime);
    record["id"] = id;
    log.add(record);
    result.records.push_back(std::move(record));
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.summary = summarize(task.metric(), result.records);
  return result;
}

}  // namespace fasa
