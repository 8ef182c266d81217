#include "tools/commands/eval_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <map>

#include "runtime/base/error.h"
#include "runtime/calibrate/model_hash.h"
#include "runtime/config/config_options.h"
#include "runtime/eval/shared_prompt.h"
#include "runtime/eval/step_logits.h"
#include "runtime/io/hash.h"
#include "tools/commands/eval_method.h"
#include "tools/terminal/progress.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

std::string dims_hash(const std::vector<int16_t>& dims) {
  return fmt::format("fnv1a:{:016x}", fnv1a(fmt::format("{}", fmt::join(dims, " "))));
}

// Keeps letters, digits and dots; replaces each run of other characters by one dash.
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

// The file name contains a hash of the setup, so that each setup has a file of its own.
std::string results_path(const std::string& folder, const Json& setup) {
  const std::string name = fmt::format(
      "{}-{}-{:08x}.jsonl", file_part(setup.at("task").get<std::string>()),
      file_part(setup.at("method").get<std::string>()), fnv1a(setup.dump()) & 0xffffffffu);
  return (std::filesystem::path(folder) / name).string();
}

// The examples of a task with one method.
class MethodRun {
 public:
  // `full`: the method to compare every step's logits with, possibly this one; null = no
  // comparison.
  MethodRun(EvalTask& task, const EvalSubject& subject, const EvalMethod& method,
            const EvalMethod* full)
      : task_(task),
        model_(*subject.model),
        full_(full == &method),
        compared_(full != nullptr),
        rows_(subject.rows_of(method)),
        result_(begin(task, subject, method, compared_ && (!full_ || scores_answers(task)))),
        log_(result_.path, result_.setup, subject.begin),
        runtime_(model_.device(), method.config, model_.config().geometry(), rows_,
                 method.slice_dims, task.longest()),
        learns_from_prompts_(learns_from_prompts(method.config)) {}

  bool full() const { return full_; }
  RowDType rows() const { return rows_; }
  bool has(size_t example) const { return log_.find(task_.id(example)) != nullptr; }

  // Runs the example unless the log has its result. `full` holds the logits of full attention: that
  // method writes them, and runs again if other methods still need them (`wanted`).
  void take(size_t example, SharedPrompt* prompt, StepLogits* full, bool wanted) {
    const std::string id = task_.id(example);
    EvalTarget target{model_, runtime_, learns_from_prompts_ ? nullptr : prompt};
    if (compared_ && full_) target.keep = full;
    if (compared_ && !full_) target.against = full;
    if (const Json* record = log_.find(id)) {
      result_.records.push_back(*record);
      ++result_.resumed;
      if (full_ && wanted) task_.run(example, target);
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    Json record = task_.run(example, target);
    record["id"] = id;
    log_.add(record);
    result_.records.push_back(std::move(record));
    const auto spent = std::chrono::steady_clock::now() - start;
    result_.seconds += std::chrono::duration<double>(spent).count();
  }

  const TaskResult& result() const { return result_; }

 private:
  // Records of full attention have the loss of right answers only where methods are compared.
  static bool scores_answers(const EvalTask& task) { return task.metric() != Metric::kPerplexity; }
  static TaskResult begin(EvalTask& task, const EvalSubject& subject, const EvalMethod& method,
                          bool against_full) {
    TaskResult result;
    result.task = task.name();
    result.setup = subject.setup(method);
    result.setup["task"] = task.name();
    result.setup["metric"] = metric_name(task.metric());
    result.setup["task_setup"] = task.setup();
    if (against_full) result.setup["against"] = "full";
    result.path = results_path(subject.results, result.setup);
    return result;
  }

  EvalTask& task_;
  Model& model_;
  const bool full_;
  const bool compared_;
  const RowDType rows_;
  TaskResult result_;
  ResultLog log_;
  Runtime runtime_;
  bool learns_from_prompts_;
};

}  // namespace

namespace {

// Makes quantised weights a separate row in tables: " int4/64, lm_head int8"; "" for unquantised
// weights.
std::string weights_suffix(const Config& config) {
  if (config.weights == WeightOptions{}) return "";
  const Json weights = config_to_json(config)["weights"];
  std::string text = " " + weights["format"].get<std::string>();
  if (config.weights.rounding != WeightRounding::kAsIs) {
    text += fmt::format("/{}", config.weights.group);
  }
  if (config.weights.head) text += ", lm_head " + weights["lm_head"].get<std::string>();
  if (config.weights.activations == DecodeActivations::kInt8) text += ", activations int8";
  return text;
}

}  // namespace

Json EvalSubject::setup(const EvalMethod& method) const {
  const auto folder =
      std::filesystem::absolute(model_dir.empty() ? "." : model_dir).lexically_normal();
  const auto name = folder.has_filename() ? folder.filename() : folder.parent_path().filename();
  Json setup = {{"model", name.string()},
                {"model_hash", model_hash(model->fingerprint())},
                {"dtype", dtype_name(model->dtype())},
                {"row_dtype", row_dtype_name(rows_of(method))},
                {"method", method.name + weights_suffix(method.config)},
                {"selection", method_setup(method.config, model->config().geometry())},
                {"slice_dims", dims_hash(method.slice_dims)}};
  if (method.config.weights != WeightOptions{}) {
    setup["weights"] = config_to_json(method.config)["weights"];
  }
  return setup;
}

void make_results_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (std::filesystem::is_directory(path)) return;
  throw UsageError(
      fmt::format("--results = \"{}\": {}; give an existing folder, or one that can be created",
                  path, error ? error.message() : "no folder"));
}

namespace {

// Whether methods are compared with full attention step by step. If only the logits' size prevents
// it, `note` says so.
bool compares_steps(const EvalTask& task, const EvalSubject& subject,
                    std::span<const EvalMethod> methods, std::string* note) {
  if (methods.size() < 2 || task.compared_steps() == 0) return false;
  if (!index_of_full(methods)) return false;
  const int64_t vocabulary = subject.model->config().vocab_size;
  const int64_t bytes = task.compared_steps() * vocabulary * int64_t{sizeof(float)};
  if (bytes <= StepLogits::kMaxBytes) return true;
  *note = fmt::format(
      "{}: predictions are not compared with full attention: the logits of {} steps take {:.1f} "
      "GiB, more than the limit of {} GiB; lower --stride",
      task.name(), task.compared_steps(), static_cast<double>(bytes) / (1 << 30),
      StepLogits::kMaxBytes >> 30);
  return false;
}

using Runs = std::vector<std::unique_ptr<MethodRun>>;
// Prompts are stored once per row dtype, because prefill reads the stored rows.
using SharedPrompts = std::map<RowDType::Kind, SharedPrompt>;

void take_example(Runs& runs, size_t example, SharedPrompts* prompts, Progress& progress,
                  size_t examples) {
  const bool wanted = std::any_of(runs.begin(), runs.end(), [&](const auto& run) {
    return !run->full() && !run->has(example);
  });
  StepLogits full;
  size_t done = 0;
  for (const bool turn : {true, false}) {
    for (const auto& run : runs) {
      if (run->full() != turn) continue;
      progress.update(static_cast<int64_t>(example * runs.size() + done++),
                      static_cast<int64_t>(examples * runs.size()));
      SharedPrompt* prompt = prompts == nullptr ? nullptr : &(*prompts)[run->rows()];
      run->take(example, prompt, &full, wanted);
    }
  }
}

}  // namespace

std::optional<size_t> index_of_full(std::span<const EvalMethod> methods) {
  for (size_t i = 0; i < methods.size(); ++i) {
    if (methods[i].config.selection.kind == SelectionKind::kFull) return i;
  }
  return std::nullopt;
}

void summarize_results(const EvalTask& task, std::vector<TaskResult>& results,
                       std::optional<size_t> full) {
  for (size_t i = 0; i < results.size(); ++i) {
    results[i].summary = summarize(task.metric(), results[i].records);
    if (!full || i == *full) continue;
    results[i].against_full = against_full(results[i].records, results[*full].records);
  }
}

std::vector<TaskResult> run_task(EvalTask& task, size_t examples, const EvalSubject& subject,
                                 std::span<const EvalMethod> methods) {
  std::string note;
  const std::optional<size_t> full = index_of_full(methods);
  const EvalMethod* compared_with =
      compares_steps(task, subject, methods, &note) ? &methods[*full] : nullptr;
  Runs runs;
  for (const EvalMethod& method : methods) {
    runs.push_back(std::make_unique<MethodRun>(task, subject, method, compared_with));
  }
  SharedPrompts prompts;
  Progress progress(task.name());
  for (size_t i = 0; i < examples; ++i) {
    take_example(runs, i, runs.size() > 1 ? &prompts : nullptr, progress, examples);
    prompts.clear();
  }
  std::vector<TaskResult> results;
  for (const auto& run : runs) results.push_back(run->result());
  summarize_results(task, results, full);
  results.front().note = note;
  return results;
}

}  // namespace fasa
