// fasa eval: measures the quality of a model's answers under a selection.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/capture/calibration_data.h"
#include "runtime/eval/eval_plan.h"
#include "runtime/io/machine.h"
#include "runtime/io/output_file.h"
#include "runtime/llm/compute/model_slices.h"
#include "runtime/llm/compute/open_model_device.h"
#include "runtime/llm/generation/model_tokenizer.h"
#include "tools/commands/command.h"
#include "tools/commands/compared_methods.h"
#include "tools/commands/eval_method.h"
#include "tools/flags/add_option.h"
#include "tools/flags/config_flags.h"
#include "tools/flags/load_model.h"
#include "tools/flags/slice_choice.h"
#include "tools/report/eval_report.h"
#include "tools/report/eval_scores.h"
#include "tools/report/eval_table.h"
#include "tools/report/report_page.h"

namespace fasa {
namespace {

class EvalCommand final : public Command {
 public:
  CLI::App* add_to(CLI::App& app) override;
  int run() override;

 private:
  void add_task_flags();
  void add_data_flags();
  void add_method_flags();
  void add_output_flags();
  // Adds a flag whose help text states its default.
  template <typename Value>
  CLI::Option* add_flag(const char* flag, const char* type, Value& value, const char* help) {
    return add_option(*command_, flag, value, type, help);
  }
  template <typename Value>
  void add_shown_flag(const char* flag, const char* type, Value& value, const char* help) {
    add_flag(flag, type, value, help)->capture_default_str();
  }

  std::vector<Config> configs(const Config& base) const;
  std::vector<EvalMethod> methods(Model& model, const std::vector<Config>& configs,
                                  const text::Tokenizer* tokenizer) const;
  EvalReport evaluate(const std::vector<Config>& configs, const ModelConfig& model_config);

  CLI::App* command_ = nullptr;
  ConfigFlags config_flags_;
  EvalOptions flags_;
  std::string question_;
  std::string selections_;
  std::vector<std::string> budgets_;
  std::vector<std::string> row_dtypes_;
  std::string results_ = "eval-results";
  bool fresh_ = false;
  std::string metrics_python_;
  std::string html_;
  std::string pre_;
  bool json_ = false;
};

void EvalCommand::add_task_flags() {
  add_flag("--text", "FILE", flags_.texts, "Text files; default: a bundled text");
  add_flag("--context", "N", flags_.contexts,
           "Tokens of a window, or of a text with facts; one or more values; default: 4096");
  add_flag("--examples", "N", flags_.examples, "Number of examples; default: depends on the task");
  add_flag("--stride", "N", flags_.stride,
           "ppl: number of tokens of a window to decode and score; default: a quarter");
  command_->add_flag("--one-pass", flags_.one_pass,
                     "ppl: decode a page of tokens at once, layer by layer: the same results, "
                     "faster (cpu device only; selections that evict still decode token by token)");
  add_flag("--facts", "N", flags_.facts,
           "needle, turns: number of facts per example; default: 4, turns 5");
  add_flag("--depths", "SHARE", flags_.depths,
           "needle, turns: positions of facts, as shares of the text; default: eight from 0 to "
           "0.875");
  add_shown_flag("--records", "N", flags_.records,
                 "extract: number of records of a text, one or more values");
  add_flag("--question", "HOW", question_,
           "How questions are read: decode, with the selection, or prefill, as the end of a prompt "
           "(default: decode)")
      ->check(CLI::IsMember({"decode", "prefill"}));
  add_shown_flag("--seed", "N", flags_.seed, "Seed for the choice of examples");
}

void EvalCommand::add_data_flags() {
  add_flag("--data", "DIR", flags_.data,
           "ruler, longbench, longbench2, math: folder of the data sets, files NAME.jsonl or "
           "NAME/validation.jsonl");
  add_flag("--tasks", "NAME", flags_.tasks,
           "retrieval, ruler, longbench, math: tasks to run; default: all, or all in the folder");
  add_shown_flag("--samples", "N", flags_.math.samples, "math: number of solutions per problem");
  add_shown_flag("--pass-k", "K", flags_.math.pass_k,
                 "math: an answer counts as right if one of K solutions is");
  add_shown_flag("--temperature", "T", flags_.math.sampling.temperature, "math: 0 = greedy");
  add_shown_flag("--top-p", "P", flags_.math.sampling.top_p,
                 "math: sample among tokens with this total probability");
  add_flag("--metrics-python", "PATH", metrics_python_,
           "Python with the packages of the metrics; default: the environment made by "
           "tools/env metrics");
}

void EvalCommand::add_method_flags() {
  add_flag(
      "--selections", "NAMES", selections_,
      "Selections to compare, separated by commas, or all; each text is prefilled once for all "
      "of them; if full is among them, answers and predictions of the others are compared "
      "with those of full (default: the config's selection and full)");
  add_flag("--budgets", "N", budgets_,
           "fac_tokens to run each selection with, one or more values, without low-bit tokens; "
           "128+512 and 128+all add low_bit_tokens, 128+all:int4 in these codes");
  add_flag("--row-dtypes", "DTYPE", row_dtypes_,
           "row_dtype to run each selection with, one or more values; they are compared with full "
           "attention in the first of them");
}

void EvalCommand::add_output_flags() {
  add_shown_flag("--results", "DIR", results_, "Folder to store results in, and to resume from");
  command_->add_flag("--fresh", fresh_, "Start again, ignoring stored results");
  add_flag("--html", "FILE", html_, "Write an HTML report");
  command_->add_flag("--json", json_, "Print one JSON object instead of a table");
}

CLI::App* EvalCommand::add_to(CLI::App& app) {
  command_ =
      app.add_subcommand("eval", "Measure the quality of a model's answers with a selection");
  add_option(*command_, "task", flags_.task, "TASK", eval_task_names())->required();
  add_flag("--model", "DIR", flags_.model_dir, "Folder of a Hugging Face model, or a GGUF file")
      ->required();
  add_pre_option(*command_, pre_);
  add_task_flags();
  add_data_flags();
  add_method_flags();
  add_output_flags();
  config_flags_.add_to(*command_);
  return command_;
}

// Every selection with every budget (`full` has no budget) and every row dtype.
std::vector<Config> EvalCommand::configs(const Config& base) const {
  std::vector<std::string> names = selection_list(selections_.empty() ? "none" : selections_);
  if (names.empty()) {
    names.emplace_back(selection_name(base.selection.kind));
    const bool asked = config_flags_.gives("selection.kind");
    if (!asked && names.front() != "full") names.emplace_back("full");
  }
  std::vector<ComparedBudget> budgets;
  for (const std::string& text : budgets_) budgets.push_back(parse_budget(text, "--budgets"));
  if (budgets.empty()) budgets.emplace_back();
  std::vector<Config> all;
  for (const Config& with_rows : with_row_dtypes(base, row_dtypes_)) {
    for (const std::string& name : names) {
      for (size_t i = 0; i < budgets.size(); ++i) {
        if (name == "full" && i > 0) continue;
        all.push_back(with_selection(with_rows, name, budgets[i]));
      }
    }
  }
  return all;
}

// A missing FC map is made from the calibration texts, not from the evaluated ones. Most configs
// need no map, so the texts may be missing.
std::vector<EvalMethod> EvalCommand::methods(Model& model, const std::vector<Config>& configs,
                                             const text::Tokenizer* tokenizer) const {
  constexpr int64_t kTokens = 4096;
  std::vector<int32_t> text;
  try {
    text = read_calibration_texts(default_calibration_texts(flags_.model_dir), tokenizer, kTokens);
  } catch (const InputError&) {
    // If a map is needed, the empty text is refused later.
  }
  std::vector<EvalMethod> all;
  for (const Config& config : configs) {
    std::string name = method_name(config, model.config().geometry());
    if (row_dtypes_.size() > 1) {
      name += fmt::format(", {} rows", row_dtype_name(*config.placement.row_dtype));
    }
    const auto same = [&](const EvalMethod& other) { return other.name == name; };
    if (std::any_of(all.begin(), all.end(), same)) continue;
    all.push_back({name, config, choose_slices(model, config, flags_.model_dir, text).dims});
  }
  return all;
}

EvalReport EvalCommand::evaluate(const std::vector<Config>& configs,
                                 const ModelConfig& model_config) {
  const auto tokenizer = open_tokenizer(flags_.model_dir, pre_);
  auto planned = plan_tasks(flags_, model_config.max_positions, tokenizer.get());
  std::optional<MetricsProgram> metrics;
  if (planned.front().scored_apart) metrics.emplace(metrics_python_);
  make_results_folder(results_);
  const Config& first = configs.front();
  const auto device = open_model_device(first.device_options(), model_config);
  int64_t context = 0;
  for (const PlannedTask& one : planned) context = std::max(context, one.task->longest());
  Model model =
      load_model(flags_.model_dir, *device, std::nullopt, first.weights, {context, "--context"});
  EvalSubject subject{.model = &model,
                      .model_dir = flags_.model_dir,
                      .row_dtype = first.placement.row_dtype.value_or(model_config.row_dtype()),
                      .results = results_,
                      .begin = fresh_ ? ResultLog::Begin::kAfresh : ResultLog::Begin::kResume};
  const auto compared = methods(model, configs, tokenizer.get());
  EvalReport report{.task = flags_.task, .model = flags_.model_dir, .methods = {}, .notes = {}};
  for (const EvalMethod& one : compared) report.methods.push_back({one.name, one.config, {}});
  for (const PlannedTask& one : planned) {
    auto results = run_task(*one.task, one.examples, subject, compared);
    if (!results.front().note.empty()) report.notes.push_back(results.front().note);
    if (metrics) {
      for (TaskResult& result : results) {
        metrics->score(result.path);
        add_scores(result.path, result.records);
      }
      summarize_results(*one.task, results, index_of_full(compared));
    }
    for (size_t m = 0; m < results.size(); ++m) {
      report.methods[m].tasks.push_back(std::move(results[m]));
    }
    report.skipped += static_cast<int64_t>(one.problems.size());
    report.notes.insert(report.notes.end(), one.problems.begin(), one.problems.end());
  }
  compare_totals(report, index_of_full(compared));
  return report;
}

int EvalCommand::run() {
  reject_unknown_arguments(*command_);
  flags_.prefill_questions = question_ == "prefill";
  const std::vector<Config> all = configs(with_map(config_flags_.load(), flags_.model_dir));
  require_usable_target();
  const ModelConfig model_config = ModelConfig::load(flags_.model_dir);
  for (const Config& config : all) config.validate_for(model_config.geometry());
  if (!html_.empty()) check_writable(html_);
  const EvalReport report = evaluate(all, model_config);
  if (!html_.empty()) write_file_atomically(html_, report_page("eval", to_json(report)));
  if (json_) {
    fmt::print("{}\n", to_json(report).dump(2));
    return 0;
  }
  const auto& setup = report.methods.front().tasks.front().setup;
  fmt::print("{}\nResults in {}\n{}", to_table(report), results_,
             results_table(results_, setup.at("model_hash").get<std::string>()));
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_eval_command() { return std::make_unique<EvalCommand>(); }

}  // namespace fasa
