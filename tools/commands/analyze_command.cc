// fasa analyze: how a model's heads use their frequency chunks.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/eval/eval_text.h"
#include "runtime/io/machine.h"
#include "runtime/io/output_file.h"
#include "runtime/llm/compute/open_model_device.h"
#include "runtime/llm/generation/model_tokenizer.h"
#include "tools/commands/command.h"
#include "tools/flags/add_option.h"
#include "tools/flags/config_flags.h"
#include "tools/flags/load_model.h"
#include "tools/flags/slice_choice.h"
#include "tools/report/analyze_report.h"
#include "tools/report/report_page.h"
#include "tools/terminal/progress.h"

namespace fasa {
namespace {

class AnalyzeCommand final : public Command {
 public:
  CLI::App* add_to(CLI::App& app) override;
  int run() override;

 private:
  AnalyzeReport analyze_model(const Config& config, const std::vector<AnalysisInput>& inputs);

  CLI::App* command_ = nullptr;
  ConfigFlags config_flags_;
  std::string model_dir_;
  std::vector<std::string> texts_;
  AnalysisOptions options_;
  std::string html_;
  bool json_ = false;
};

CLI::App* AnalyzeCommand::add_to(CLI::App& app) {
  command_ = app.add_subcommand("analyze", "Show how heads use frequency chunks");
  add_model_option(*command_, model_dir_)->required();
  add_option(*command_, "--text", texts_, "FILE", "Text files to run over")->required();
  add_option(*command_, "-o,--output", html_, "FILE.html", "Write an HTML report");
  command_->add_flag("--json", json_, "Print one JSON object instead of tables");
  add_shown_option(*command_, "--tokens", options_.tokens, "N", "Maximum tokens of each text");
  add_shown_option(*command_, "--window", options_.window, "K",
                   "K of the agreement measure: the best K tokens");
  add_shown_option(*command_, "--queries", options_.queries, "N",
                   "Number of positions of a text to examine");
  add_shown_option(*command_, "--seed", options_.seed, "N", "Seed for the choice of queries");
  config_flags_.add_to(*command_);
  return command_;
}

AnalyzeReport AnalyzeCommand::analyze_model(const Config& config,
                                            const std::vector<AnalysisInput>& inputs) {
  const auto start = std::chrono::steady_clock::now();
  const auto device = open_host_device(config.device_options());
  Model model =
      load_model(model_dir_, *device, std::nullopt, config.weights, {options_.tokens, "--tokens"});
  AnalyzeReport report{.model = model_dir_, .options = options_, .analysis = {}, .config = config};
  {
    Progress progress("layers");
    report.analysis = analyze(model, inputs, options_,
                              [&](int64_t done, int64_t total) { progress.update(done, total); });
  }
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
  options_.validate(model_config.geometry(), model_config.max_positions);
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
