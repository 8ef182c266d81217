// fasa trace: records the tokens that a model's selections take while it generates.
#include <fmt/format.h>

#include <filesystem>

#include "runtime/capture/trace_recorder.h"
#include "runtime/io/machine.h"
#include "runtime/io/output_file.h"
#include "runtime/llm/compute/open_model_device.h"
#include "tools/commands/command.h"
#include "tools/flags/add_option.h"
#include "tools/flags/config_flags.h"
#include "tools/flags/load_model.h"
#include "tools/flags/prompt.h"
#include "tools/flags/slice_choice.h"
#include "tools/terminal/progress.h"

namespace fasa {
namespace {

// For small models: as large a share of the context as a large model's set.
constexpr int64_t kTraceTokens = 128;

// The FC order of the map, if the model has a map.
std::vector<int16_t> ranked_dims(const Model& model, const Config& config,
                                 const std::string& model_dir) {
  const std::string usual = usual_map(model_dir);
  const std::string path = config.selection.map.empty() ? usual : config.selection.map;
  if (config.selection.map.empty() && !std::filesystem::exists(path)) return {};
  const FcMap map = FcMap::load(path);
  map.require_fits(model.fingerprint(), path);
  return map.slice_dims(model.config().geometry().chunks(), config.effective_fine_chunks());
}

std::string folder_name(const std::string& dir) {
  const auto path = std::filesystem::absolute(dir).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

class TraceCommand final : public Command {
 public:
  CLI::App* add_to(CLI::App& app) override {
    command_ = app.add_subcommand("trace", "Record which tokens a model selects");
    add_model_option(*command_, model_dir_)->required();
    add_prompt_options(*command_, prompt_);
    add_option(*command_, "-o,--output", output_, "FILE", "Trace file to write")->required();
    add_shown_option(*command_, "--steps", options_.steps, "N", "Number of steps to record");
    flags_.add_to(*command_);
    return command_;
  }

  int run() override {
    reject_unknown_arguments(*command_);
    Config defaults;
    defaults.selection.fac_tokens = {{.tokens = kTraceTokens, .share = 0}};
    const Config config = with_map(flags_.load(defaults), model_dir_);
    require_usable_target();
    check_writable(output_);
    const ModelConfig model_config = ModelConfig::load(model_dir_);
    options_.validate(config, model_config.geometry());
    const auto tokenizer = load_tokenizer(model_dir_, prompt_);
    const auto prompt = read_prompt(prompt_, tokenizer.get(), model_config.vocab_size);
    const auto device = open_model_device(config.device_options(), model_config);
    const int64_t context = static_cast<int64_t>(prompt.size()) + options_.steps;
    Model model = load_model(model_dir_, *device, std::nullopt, config.weights,
                             {context, "a prompt and its steps"});
    options_.ranked_dims = ranked_dims(model, config, model_dir_);
    options_.model_name = folder_name(model_dir_);
    if (prompt_.file) {
      options_.text_name = std::filesystem::path(*prompt_.file).filename().string();
    }
    Progress progress("recording");
    options_.on_token = [&](int64_t done, int64_t total) { progress.update(done, total); };
    const SelectionTrace trace = record_selection_trace(model, config, prompt, options_);
    progress.clear();
    trace.save(output_);
    fmt::print("{} steps after {} tokens, {} tokens selected; written to {}\n", trace.steps(),
               prompt.size(), trace.shape().budget, output_);
    return 0;
  }

 private:
  CLI::App* command_ = nullptr;
  ConfigFlags flags_;
  std::string model_dir_;
  std::string output_;
  PromptSource prompt_;
  TraceOptions options_;
};

}  // namespace

std::unique_ptr<Command> make_trace_command() { return std::make_unique<TraceCommand>(); }

}  // namespace fasa
