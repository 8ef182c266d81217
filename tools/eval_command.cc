// fasa eval: how good a model's answers are with a selection.
#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/llm/calibration_data.h"
#include "runtime/llm/open_model_device.h"
#include "runtime/machine.h"
#include "runtime/output_file.h"
#include "tools/command.h"
#include "tools/config_flags.h"
#include "tools/eval_plan.h"
#include "tools/eval_report.h"
#include "tools/eval_scores.h"
#include "tools/eval_table.h"
#include "tools/slice_choice.h"

namespace fasa {
namespace {

class EvalCommand final : public Command {
 public:
  CLI::App* add_to(CLI::App& app) override;
  int run() override;

 private:
  void add_task_flags();
  void add_data_flags();
  EvalReport evaluate(const Config& config, const ModelConfig& model_config);
  std::vector<int16_t> slice_dims(Model& model, const Config& config,
                                  const Tokenizer* tokenizer) const;

  CLI::App* command_ = nullptr;
  ConfigFlags config_flags_;
  EvalFlags flags_;
  std::string results_ = "eval-results";
  bool fresh_ = false;
  std::string metrics_python_;
  std::string html_;
  bool json_ = false;
};

void EvalCommand::add_task_flags() {
  command_->add_option("--text", flags_.texts, "Files to read; default: one that ships")
      ->type_name("FILE");
  command_
      ->add_option("--context", flags_.contexts,
                   "Tokens of a window or of a text with facts, one or more; default: 4096")
      ->type_name("N");
  command_->add_option("--examples", flags_.examples, "How many; default: the task's own")
      ->type_name("N");
  command_
      ->add_option("--stride", flags_.stride,
                   "ppl: tokens of a window that are decoded and scored; default: a quarter")
      ->type_name("N");
  command_->add_option("--facts", flags_.facts, "needle: facts of an example")
      ->type_name("N")
      ->capture_default_str();
  command_
      ->add_option("--depths", flags_.depths,
                   "needle: where facts lie, shares of the text; default: eight from 0 to 0.875")
      ->type_name("SHARE");
  command_->add_option("--seed", flags_.seed, "Of the choice of examples")
      ->type_name("N")
      ->capture_default_str();
  add_data_flags();
}

void EvalCommand::add_data_flags() {
  command_->add_option("--data", flags_.data, "longbench, math: folder of their files NAME.jsonl")
      ->type_name("DIR");
  command_
      ->add_option("--tasks", flags_.tasks,
                   "longbench, math: data sets; default: all in the folder")
      ->type_name("NAME");
  command_->add_option("--samples", flags_.math.samples, "math: solutions of a problem")
      ->type_name("N")
      ->capture_default_str();
  command_->add_option("--pass-k", flags_.math.pass_k, "math: right where one of so many is")
      ->type_name("K")
      ->capture_default_str();
  command_->add_option("--temperature", flags_.math.sampling.temperature, "math: 0 = greedy")
      ->type_name("T")
      ->capture_default_str();
  command_->add_option("--top-p", flags_.math.sampling.top_p, "math: sample among the best")
      ->type_name("P")
      ->capture_default_str();
  command_
      ->add_option("--metrics-python", metrics_python_,
                   "Python with the metrics' packages; default: what tools/metrics-env made")
      ->type_name("PATH");
}

CLI::App* EvalCommand::add_to(CLI::App& app) {
  command_ = app.add_subcommand("eval", "How good a model's answers are with a selection");
  command_->add_option("task", flags_.task, "ppl, needle, longbench, math")
      ->type_name("TASK")
      ->required();
  command_->add_option("--model", flags_.model_dir, "Folder of a model in Hugging Face form")
      ->type_name("DIR")
      ->required();
  add_task_flags();
  command_->add_option("--results", results_, "Folder where results are kept, and resumed from")
      ->type_name("DIR")
      ->capture_default_str();
  command_->add_flag("--fresh", fresh_, "Begin again where there are results");
  command_->add_option("--html", html_, "Write a report that a browser shows")->type_name("FILE");
  command_->add_flag("--json", json_, "Print one JSON object instead of the table");
  config_flags_.add_to(*command_);
  return command_;
}

// A map that has to be made is made from the texts of calibration, not from those that are
// evaluated; most need none, so texts may be missing.
std::vector<int16_t> EvalCommand::slice_dims(Model& model, const Config& config,
                                             const Tokenizer* tokenizer) const {
  constexpr int64_t kTokens = 4096;
  std::vector<int32_t> text;
  try {
    text = read_calibration_texts(default_calibration_texts(flags_.model_dir), tokenizer, kTokens);
  } catch (const InputError&) {
    // An empty text is refused where a map has to be made.
  }
  return choose_slices(model, config, flags_.model_dir, text).dims;
}

EvalReport EvalCommand::evaluate(const Config& config, const ModelConfig& model_config) {
  const auto tokenizer = Tokenizer::load(flags_.model_dir);
  auto planned = plan_tasks(flags_, model_config, tokenizer.get());
  std::optional<MetricsProgram> metrics;
  if (planned.front().scored_apart) metrics.emplace(metrics_python_);
  make_results_folder(results_);
  const auto device = open_model_device(config.device_options(), model_config);
  Model model = Model::load(flags_.model_dir, *device, std::nullopt);
  EvalSubject subject{.model = &model,
                      .model_dir = flags_.model_dir,
                      .config = config,
                      .row_dtype = config.placement.row_dtype.value_or(model_config.row_dtype()),
                      .slice_dims = slice_dims(model, config, tokenizer.get()),
                      .results = results_,
                      .begin = fresh_ ? ResultLog::Begin::kAfresh : ResultLog::Begin::kResume};
  EvalReport report{.task = flags_.task,
                    .model = flags_.model_dir,
                    .method = subject.method(),
                    .config = config,
                    .tasks = {},
                    .notes = {}};
  for (const PlannedTask& one : planned) {
    TaskResult result = run_task(*one.task, one.examples, subject);
    if (metrics) {
      metrics->score(result.path);
      add_scores(result.path, result.records);
      result.summary = summarize(one.task->metric(), result.records);
    }
    report.tasks.push_back(std::move(result));
    report.skipped += static_cast<int64_t>(one.problems.size());
    report.notes.insert(report.notes.end(), one.problems.begin(), one.problems.end());
  }
  return report;
}

int EvalCommand::run() {
  reject_unknown_arguments(*command_);
  const Config config = config_flags_.load();
  require_usable_target();
  const ModelConfig model_config = ModelConfig::load(flags_.model_dir);
  config.validate_for(model_config.geometry());
  if (!html_.empty()) check_writable(html_);
  const EvalReport report = evaluate(config, model_config);
  if (!html_.empty()) write_file_atomically(html_, to_html(report));
  if (json_) {
    fmt::print("{}\n", to_json(report).dump(2));
    return 0;
  }
  const auto hash = report.tasks.front().setup.at("model_hash").get<std::string>();
  fmt::print("{}\nResults in {}\n{}", to_table(report), results_, results_table(results_, hash));
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_eval_command() { return std::make_unique<EvalCommand>(); }

}  // namespace fasa
