// fasa analyze: how a model's heads use their frequency chunks, and what selections keep.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/eval/eval_text.h"
#include "runtime/io/machine.h"
#include "runtime/io/output_file.h"
#include "runtime/llm/model_slices.h"
#include "runtime/llm/model_tokenizer.h"
#include "runtime/llm/open_model_device.h"
#include "tools/analyze_report.h"
#include "tools/command.h"
#include "tools/compared_methods.h"
#include "tools/config_flags.h"
#include "tools/eval_method.h"
#include "tools/progress.h"
#include "tools/report_page.h"
#include "tools/slice_choice.h"

namespace fasa {
namespace {

class AnalyzeCommand final : public Command {
 public:
  CLI::App* add_to(CLI::App& app) override;
  int run() override;

 private:
  void validate(const ModelConfig& model) const;
  AnalyzeReport analyze_model(const Config& config, const std::vector<AnalysisInput>& inputs);
  void measure_selections(Model& model, SetObserver& observer, AnalyzeReport& report) const;

  CLI::App* command_ = nullptr;
  ConfigFlags config_flags_;
  std::string model_dir_;
  std::vector<std::string> texts_;
  AnalysisOptions options_;
  std::string selections_ = "all";
  std::vector<int64_t> budgets_ = {32, 64, 128, 256};
  int steps_ = 48;
  std::string html_;
  bool json_ = false;
};

CLI::App* AnalyzeCommand::add_to(CLI::App& app) {
  command_ = app.add_subcommand("analyze",
                                "Show how heads use frequency chunks and what selections capture");
  command_->add_option("--model", model_dir_, "Folder of a Hugging Face model, or a GGUF file")
      ->type_name("DIR")
      ->required();
  command_->add_option("--text", texts_, "Text files to run over")->type_name("FILE")->required();
  command_->add_option("-o,--output", html_, "Write an HTML report")->type_name("FILE.html");
  command_->add_flag("--json", json_, "Print one JSON object instead of tables");
  command_->add_option("--tokens", options_.tokens, "Maximum tokens of each text")
      ->type_name("N")
      ->capture_default_str();
  command_->add_option("--window", options_.window, "K of the agreement measure: the best K tokens")
      ->type_name("K")
      ->capture_default_str();
  command_->add_option("--queries", options_.queries, "Number of positions of a text to examine")
      ->type_name("N")
      ->capture_default_str();
  command_
      ->add_option("--selections", selections_,
                   "Selections to measure the captured attention of: names separated by commas, "
                   "all, or none")
      ->type_name("NAMES")
      ->capture_default_str();
  command_->add_option("--budgets", budgets_, "fac_tokens of these selections")
      ->type_name("N")
      ->capture_default_str();
  command_->add_option("--steps", steps_, "Decode steps on the text to measure them over")
      ->type_name("N")
      ->capture_default_str();
  command_
      ->add_option("--seed", options_.seed, "Seed for the choice of queries and planted strings")
      ->type_name("N")
      ->capture_default_str();
  config_flags_.add_to(*command_);
  return command_;
}

void AnalyzeCommand::validate(const ModelConfig& model) const {
  options_.validate(model.geometry(), model.max_positions);
  const auto require = [](bool ok, std::string_view flag, auto given, const std::string& allowed) {
    if (!ok) throw UsageError(fmt::format("{} = {}: allowed: {}", flag, given, allowed));
  };
  require(steps_ >= 1 && 2 * int64_t{steps_} <= options_.tokens, "--steps", steps_,
          fmt::format("1 to {}, half the tokens of a text", options_.tokens / 2));
  for (const int64_t budget : budgets_) {
    require(budget >= 1 && budget <= options_.tokens, "--budgets", budget,
            fmt::format("1 to {}, the number of tokens of a text", options_.tokens));
  }
}

// Measured on the last text only; maps and agreement use all texts.
void AnalyzeCommand::measure_selections(Model& model, SetObserver& observer,
                                        AnalyzeReport& report) const {
  const auto names = selection_list(selections_);
  if (names.empty()) return;
  const AnalysisText& text = report.analysis.texts.back();
  Progress progress("selections");
  int64_t done = 0;
  for (const std::string& name : names) {
    for (const int64_t budget : budgets_) {
      const Config config = with_selection(report.config, name, {.tokens = budget});
      const auto slices = choose_slices(model, config, model_dir_, text.data.ids);
      SelectionAttention attention =
          measure_selection(model, observer, config, slices.dims, text, steps_);
      attention.method = name;
      attention.budget = budget;
      report.analysis.selections.push_back(std::move(attention));
      progress.update(++done, static_cast<int64_t>(names.size() * budgets_.size()));
    }
  }
}

AnalyzeReport AnalyzeCommand::analyze_model(const Config& config,
                                            const std::vector<AnalysisInput>& inputs) {
  const auto start = std::chrono::steady_clock::now();
  const auto device = open_host_device(config.device_options());
  SetObserver observer(*device);
  Model model = Model::load(model_dir_, observer, std::nullopt, config.weights);
  AnalyzeReport report{.model = model_dir_,
                       .options = options_,
                       .text_steps = steps_,
                       .analysis = {},
                       .config = config};
  {
    Progress progress("layers");
    report.analysis = analyze(
        model, inputs, options_,
        [&](const std::string&, int64_t done, int64_t total) { progress.update(done, total); });
  }
  measure_selections(model, observer, report);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

int AnalyzeCommand::run() {
  reject_unknown_arguments(*command_);
  const Config config = with_map(config_flags_.load(), model_dir_);
  require_usable_target();
  const ModelConfig model_config = ModelConfig::load(model_dir_);
  config.validate_for(model_config.geometry());
  if (command_->get_option("--tokens")->count() == 0) {
    options_.tokens = std::min(options_.tokens, model_config.max_positions);
  }
  validate(model_config);
  for (const std::string& name : selection_list(selections_)) {
    with_selection(config, name, {.tokens = budgets_.front()});
  }
  if (!html_.empty()) check_writable(html_);
  const auto tokenizer = open_tokenizer(model_dir_);
  std::vector<AnalysisInput> inputs;
  for (EvalText& text : read_eval_texts(texts_, tokenizer.get())) {
    inputs.push_back({std::filesystem::path(text.path).filename().string(), std::move(text.ids)});
  }
  const AnalyzeReport report = analyze_model(config, inputs);
  if (!html_.empty()) write_file_atomically(html_, report_page("analyze", to_json(report)));
  fmt::print("{}", json_ ? to_json(report).dump(2) + "\n" : to_table(report));
  return 0;
}

}  // namespace

std::unique_ptr<Command> make_analyze_command() { return std::make_unique<AnalyzeCommand>(); }

}  // namespace fasa
