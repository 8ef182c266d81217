// fasa plan: a model's memory and speed on a machine, before it is loaded.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/require.h"
#include "runtime/base/units.h"
#include "runtime/catalog/geometry_catalog.h"
#include "runtime/io/output_file.h"
#include "runtime/llm/compute/model_memory.h"
#include "runtime/llm/compute/model_slices.h"
#include "runtime/llm/config/model_config.h"
#include "runtime/llm/config/model_shape.h"
#include "runtime/plan/planner.h"
#include "tools/commands/command.h"
#include "tools/commands/emulated_decode.h"
#include "tools/flags/add_option.h"
#include "tools/flags/config_flags.h"
#include "tools/flags/help_text.h"
#include "tools/flags/prefill_chunk_flag.h"
#include "tools/report/plan_report.h"

namespace fasa {
namespace {

constexpr int64_t kUsualTokens = 131072;

class PlanCommand final : public Command {
 public:
  CLI::App* add_to(CLI::App& app) override;
  int run() override;

 private:
  PlanOptions read_model() const;
  PlannedWeights planned_weights(const PlanOptions& request) const;
  GivenMachine read_machine() const;
  int64_t read_tokens(const ModelShape& model) const;
  void check_values() const;

  CLI::App* command_ = nullptr;
  ConfigFlags flags_;
  std::string model_dir_;
  std::string geometry_;
  std::string vram_;
  std::string memory_bandwidth_;
  std::string link_bandwidth_;
  int64_t tokens_ = 0;
  CLI::Option* tokens_option_ = nullptr;
  std::optional<int> weight_bits_;
  PlanPrediction prediction_;
  int prefill_chunk_ = kAutomaticChunk;
  bool allow_long_ = false;
  bool list_ = false;
  bool json_ = false;
  bool all_ = false;
  std::string output_;
};

CLI::App* PlanCommand::add_to(CLI::App& app) {
  command_ = app.add_subcommand("plan", "Predict what fits a machine and how fast it would be");
  add_option(*command_, "--model", model_dir_, "DIR",
             "Folder of a Hugging Face model (config.json is enough), or a GGUF file");
  add_option(*command_, "--geometry", geometry_, "NAME",
             "A model by name, such as Llama-3.1-8B; see --list");
  add_option(*command_, "--vram", vram_, "SIZE", "Memory of the device; default: that of the GPU");
  add_option(*command_, "--memory-bandwidth", memory_bandwidth_, "RATE",
             "Bandwidth of that memory; default: that of the GPU");
  add_option(
      *command_, "--link-bandwidth", link_bandwidth_, "RATE",
      "Rate of the link between host and device; default: --bandwidth, else that of the GPU");
  tokens_option_ = add_option(*command_, "--tokens", tokens_, "N",
                              "Context length; default: the model's, at most 131072");
  add_option(*command_, "--weight-bits", weight_bits_, "N",
             "Assume weights in 16, 8 or 4 bits; default: with --geometry 4, else the model's own, "
             "stored as --weights says");
  add_option(*command_, "--overlap", prediction_.overlap, "SHARE",
             "Assumed share of a set that hot rows hold from earlier steps; default: as on the "
             "shipped trace");
  add_option(*command_, "--coverage", prediction_.coverage, "SHARE",
             "Assumed share of the rest that prefetch brings; default: as on the shipped trace");
  add_prefill_chunk(*command_, prefill_chunk_);
  command_->add_flag("--allow-long", allow_long_, "Allow more tokens than the model has positions");
  command_->add_flag("--list", list_, "Print the names of GPUs and geometries instead of a plan");
  command_->add_flag("--all", all_, "Show all presets and slices, not only the usual ones");
  add_option(*command_, "-o,--output", output_, "FILE.toml",
             "Write the recommended settings to this config file");
  command_->add_flag("--json", json_, "Print one JSON object");
  flags_.add_to(*command_);
  return command_;
}

PlanOptions PlanCommand::read_model() const {
  if (model_dir_.empty() == geometry_.empty()) {
    throw UsageError(model_dir_.empty()
                         ? "a plan needs --model DIR or --geometry NAME"
                         : "--model and --geometry exclude each other; give one of them");
  }
  PlanOptions request;
  if (!geometry_.empty()) {
    request.model = find_model_shape(geometry_);
    return request;
  }
  const ModelConfig config = ModelConfig::load(model_dir_);
  request.model = model_shape(config, model_dir_);
  request.model_path = model_dir_;
  request.row_dtype = config.row_dtype();
  return request;
}

double rate_of(const char* flag, const std::string& text) {
  const auto rate = parse_rate(text);
  require(rate.has_value(), flag, fmt::format("\"{}\"", text),
          "a rate above 0, such as \"16GB/s\"");
  return *rate;
}

PlannedWeights PlanCommand::planned_weights(const PlanOptions& request) const {
  const ModelConfig config =
      geometry_.empty() ? ModelConfig::load(model_dir_) : llama_config(request.model);
  const int64_t chunk =
      std::min<int64_t>(request.prefill_chunk.value_or(kMinPrefillChunk), request.tokens);
  const PanelOrder order =
      request.machine.traits.model_calls ? PanelOrder::kPlain : PanelOrder::kPacked;
  const WeightOptions weights = request.config.weight_options();
  const ModelMemory memory = model_memory(model_dir_, config, {}, weights, chunk, order);
  const uint64_t rows = mtp_row_bytes(config, weights, request.row_dtype, request.tokens);
  return {.total = memory.weights.total,
          .layers = memory.weights.layers,
          .head = memory.weights.head,
          .activations = memory.activations + rows,
          .activations_per_token = memory.activations_per_token,
          .host = memory.weights.host,
          .experts = memory.weights.experts,
          .chosen = memory.weights.chosen};
}

GivenMachine PlanCommand::read_machine() const {
  GivenMachine given;
  if (!vram_.empty()) {
    given.vram = parse_bytes(vram_);
    if (!given.vram || *given.vram == 0) {
      throw UsageError(fmt::format("--vram = \"{}\": allowed: a size above 0, such as \"16GiB\"{}",
                                   vram_, missing_unit_hint(vram_)));
    }
  }
  if (!memory_bandwidth_.empty()) {
    given.memory_bandwidth = rate_of("--memory-bandwidth", memory_bandwidth_);
  }
  if (!link_bandwidth_.empty()) given.link_bandwidth = rate_of("--link-bandwidth", link_bandwidth_);
  return given;
}

int64_t PlanCommand::read_tokens(const ModelShape& model) const {
  if (tokens_option_->count() == 0) return std::min(model.max_positions, kUsualTokens);
  const int64_t most = allow_long_ ? INT32_MAX : model.max_positions;
  const std::string why =
      fmt::format(", the positions of {} (--allow-long plans beyond them)", model.name);
  require(tokens_ >= 1 && tokens_ <= most, "--tokens", tokens_,
          fmt::format("1 to {}{}", most, allow_long_ ? "" : why));
  return tokens_;
}

void PlanCommand::check_values() const {
  const auto check = [](const char* flag, double share) {
    require(share >= 0 && share <= 1, flag, share, "a share from 0 to 1");
  };
  check("--overlap", prediction_.overlap.value_or(0));
  check("--coverage", prediction_.coverage.value_or(0));
  const int bits = weight_bits_.value_or(kUsualWeightBits);
  require(bits == 16 || bits == 8 || bits == 4, "--weight-bits", bits, "16, 8, 4");
}

int PlanCommand::run() {
  reject_unknown_arguments(*command_);
  if (list_) {
    fmt::print("{}", json_ ? catalog_json().dump(2) + "\n" : catalog_table());
    return 0;
  }
  check_values();
  const GivenMachine given = read_machine();
  PlanOptions request = read_model();
  const Config config = model_dir_.empty() ? flags_.load() : with_map(flags_.load(), model_dir_);
  request.config = config;
  request.row_dtype = config.placement.row_dtype.value_or(request.row_dtype);
  request.tokens = read_tokens(request.model);
  request.machine = make_plan_machine(config, given);
  request.given_machine = given;
  if (prefill_chunk_ != kAutomaticChunk) request.prefill_chunk = prefill_chunk_;
  const bool rounded = config.weights.rounding != WeightRounding::kAsIs;
  if (weight_bits_ || (!geometry_.empty() && !rounded)) {
    request.weight_bits = weight_bits_.value_or(kUsualWeightBits);
  } else {
    request.weights = planned_weights(request);
  }
  request.prediction = prediction_;
  config.validate_for(request.model.geometry);
  if (!output_.empty()) check_writable(output_);
  const Plan plan = make_plan(request);
  if (!output_.empty() && plan.recommended) {
    write_file_atomically(output_, recommended_toml(request, plan));
  }
  if (json_) {
    fmt::print("{}\n", to_json(request, plan).dump(2));
  } else {
    fmt::print("{}", to_table(request, plan, {.all = all_, .file = output_}));
  }
  return plan.recommended ? 0 : static_cast<int>(ErrorKind::kBudget);
}

}  // namespace

std::unique_ptr<Command> make_plan_command() { return std::make_unique<PlanCommand>(); }

}  // namespace fasa
