// fasa calibrate: makes the FC map of a model.
#include <fmt/format.h>

#include <chrono>

#include "runtime/calibrate/calibrate_slices.h"
#include "runtime/capture/calibration.h"
#include "runtime/io/machine.h"
#include "runtime/io/output_file.h"
#include "runtime/llm/compute/model.h"
#include "runtime/llm/compute/open_model_device.h"
#include "runtime/llm/generation/model_tokenizer.h"
#include "runtime/text/tokenizer.h"
#include "tools/commands/command.h"
#include "tools/flags/add_option.h"
#include "tools/flags/config_flags.h"
#include "tools/flags/load_model.h"
#include "tools/terminal/progress.h"

namespace fasa {
namespace {

// The number of best chunks that a slice of `dims` dimensions holds, at least in part.
size_t chunks_within(const HeadRanking& ranking, int dims) {
  size_t count = 0;
  for (int taken = 0; taken < dims && count < ranking.chunks.size(); ++count) {
    taken += static_cast<int>(ranking.chunks[count].size());
  }
  return count;
}

std::string summary_of(const FcMap& map, int tip_chunks) {
  std::string table =
      fmt::format("{:>5} {:>7} {:>9} {:>17}  {}\n", "layer", "KV head", "best CA",
                  "distant attention", "frequency chunks, best first (their dimensions)");
  for (size_t layer = 0; layer < map.heads.size(); ++layer) {
    for (size_t head = 0; head < map.heads[layer].size(); ++head) {
      const HeadRanking& ranking = map.heads[layer][head];
      const size_t count = chunks_within(ranking, 2 * tip_chunks);
      double best = 0;
      for (const double agreement : ranking.agreement) best = std::max(best, agreement);
      std::string chunks;
      for (size_t i = 0; i < std::min<size_t>(count, 6); ++i) {
        chunks += fmt::format("{} ", fmt::join(ranking.chunks[i], "+"));
      }
      const double kept = count == 0 || ranking.distant_attention_kept.size() < count
                              ? 0
                              : ranking.distant_attention_kept[count - 1];
      table += fmt::format("{:>5} {:>7} {:>9.3f} {:>17.3f}  {}\n", layer, head, best, kept, chunks);
    }
  }
  return table;
}

class CalibrateCommand final : public Command {
 public:
  CLI::App* add_to(CLI::App& app) override {
    command_ = app.add_subcommand("calibrate", "Make the FC map of a model from text");
    add_model_option(*command_, model_dir_)->required();
    add_pre_option(*command_, pre_);
    add_option(*command_, "--text", texts_, "FILE",
               "Text files to run over; default: the project's texts");
    add_option(*command_, "-o,--output", output_, "FILE", "FC map file to write")->required();
    tokens_option_ = add_shown_option(*command_, "--tokens", options_.tokens, "N",
                                      "Number of tokens to run, including probes");
    add_option(*command_, "--window", options_.window, "K",
               "Number of tokens selected; default: depends on the length");
    add_shown_option(*command_, "--objective", objective_, "NAME", "distant_attention, ca");
    add_shown_option(*command_, "--queries", options_.queries, "N",
                     "Number of positions whose queries are used");
    add_shown_option(*command_, "--seed", options_.seed, "N",
                     "Seed for the choice of queries and probes");
    add_option(*command_, "--slice-bytes", options_.slice_bytes, "N",
               "Choose bits and FCs of the slice within N bytes per token and KV head");
    command_->add_flag("--no-probes", no_probes_,
                       "Do not plant strings for later queries to attend to");
    flags_.add_to(*command_);
    return command_;
  }

  int run() override {
    reject_unknown_arguments(*command_);
    const Config config = flags_.load();
    require_usable_target();
    const ModelConfig model_config = ModelConfig::load(model_dir_);
    set_options(config, model_config);
    check_writable(output_);
    const auto tokenizer = open_tokenizer(model_dir_, pre_);
    const auto paths = texts_.empty() ? default_calibration_texts(model_dir_) : texts_;
    const auto text = read_calibration_texts(paths, tokenizer.get(), options_.tokens);

    const auto device = open_model_device(config.device_options(), model_config);
    Model model = load_model(model_dir_, *device, std::nullopt, config.weights,
                             {options_.tokens, "--tokens"});
    const auto start = std::chrono::steady_clock::now();
    const FcMap map = calibrate_with_progress(model, text);
    map.save(output_);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const int chunks = model_config.geometry().chunks();
    const int shown = options_.tip_chunks > 0 ? options_.tip_chunks : std::max(1, chunks / 4);
    fmt::print("{}", summary_of(map, shown));
    fmt::print(
        "\nshare of the oracle's distant attention kept by the first {} of {} FCs, {} tokens "
        "selected\n{} queries over {} tokens{}, objective {}, {:.1f} s; written to {}\n",
        shown, chunks, map.window, map.queries, map.tokens, map.probes ? " with probes" : "",
        map.objective, seconds, output_);
    print_findings(map);
    return 0;
  }

 private:
  void print_findings(const FcMap& map) const;
  void set_options(const Config& config, const ModelConfig& model);
  FcMap calibrate_with_progress(Model& model, const std::vector<int32_t>& text) const;

  CLI::App* command_ = nullptr;
  CLI::Option* tokens_option_ = nullptr;
  ConfigFlags flags_;
  std::string model_dir_;
  std::string pre_;
  std::string output_;
  std::vector<std::string> texts_;
  std::string objective_ = std::string(objective_name(Objective::kDistantAttention));
  CalibrationOptions options_;
  bool no_probes_ = false;
};

void CalibrateCommand::print_findings(const FcMap& map) const {
  if (map.slice) {
    const MapSlice& slice = *map.slice;
    fmt::print("slice within {} bytes: {} FCs in {}{} ({:.1f} bytes); used with --slice map\n",
               slice.bytes, slice.tip_chunks, slice_dtype_name(slice.dtype),
               slice.fine_chunks > 0 ? fmt::format(", {} of them in int4", slice.fine_chunks) : "",
               slice_bytes_per_token(slice.dtype, slice.tip_chunks, slice.fine_chunks));
  }
}

void CalibrateCommand::set_options(const Config& config, const ModelConfig& model) {
  options_.objective = parse_objective(objective_, "--objective");
  options_.probes = !no_probes_;
  options_.tip_chunks = config.selection.tip_chunks.value_or(0);
  options_.sinks = config.selection.sinks;
  options_.recent = config.selection.recent;
  if (tokens_option_->count() == 0) {
    options_.tokens = std::min(options_.tokens, model.max_positions);
  }
  options_.validate(model.geometry(), model.max_positions);
}

FcMap CalibrateCommand::calibrate_with_progress(Model& model,
                                                const std::vector<int32_t>& text) const {
  Progress running("running the model");
  Progress ranking("ranking heads");
  return calibrate(model, text, options_, [&](CalibrationPhase phase, int64_t done, int64_t total) {
    if (phase == CalibrationPhase::kRunning) {
      running.update(done, total);
    } else {
      running.clear();
      ranking.update(done, total);
    }
  });
}

}  // namespace

std::unique_ptr<Command> make_calibrate_command() { return std::make_unique<CalibrateCommand>(); }

}  // namespace fasa
