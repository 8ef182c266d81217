#include "tools/commands/profile_subject.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "runtime/api/kv_cost.h"
#include "runtime/base/error.h"
#include "runtime/base/require.h"
#include "runtime/base/units.h"
#include "runtime/catalog/geometry_catalog.h"
#include "runtime/catalog/gpu_catalog.h"
#include "runtime/config/layer_budgets.h"
#include "runtime/plan/plan_machine.h"
#include "runtime/profile/profiled_model.h"
#include "runtime/text/tokenizer.h"
#include "tools/commands/emulated_decode.h"
#include "tools/flags/load_model.h"
#include "tools/flags/slice_choice.h"
#include "tools/terminal/progress.h"

namespace fasa {
namespace {

// A baseline with all rows on the device gets the memory that it needs.
bool lifts_budget(const Config& config) {
  return config.placement.rows == RowPlacement::kDevice && !config.memory.device_memory;
}

std::string selections_of(const std::string& name, const SelectionTrace& trace) {
  return fmt::format("{}: {} steps of {} at {} tokens, stretched to this context",
                     std::filesystem::path(name).filename().string(), trace.steps(),
                     trace.shape().model.empty() ? "a model" : trace.shape().model,
                     trace.context(0));
}

std::string gpu_name(const Config& config) {
  return config.device.gpu.empty() ? "the emulated device" : find_gpu(config.device.gpu).name;
}

}  // namespace

void ProfileOptions::validate() const {
  if (model_dir.empty() == geometry.empty()) {
    throw UsageError(model_dir.empty()
                         ? "a profile needs --model DIR or --geometry NAME"
                         : "--model and --geometry exclude each other; give one of them");
  }
  require(steps >= 1 && steps <= 100000, "--steps", steps, "1 to 100000");
  require(!warmup || (*warmup >= 0 && *warmup <= 100000), "--warmup", warmup.value_or(0),
          "0 to 100000");
  const int bits = weight_bits.value_or(kUsualWeightBits);
  require(bits == 0 || bits == 4 || bits == 8 || bits == 16, "--weight-bits", bits, "0, 4, 8, 16");
  const bool prompted = prompt.text || prompt.file || prompt.ids_file;
  if (synthetic()) {
    require(tokens >= 1 && tokens <= INT32_MAX / 2, "--tokens", tokens, "1 to 1073741823");
    require(sequences >= 1 && sequences <= 256, "--sequences", sequences, "1 to 256");
    require(step_tokens >= 1 && step_tokens <= 16, "--step-tokens", step_tokens, "1 to 16");
    if (prompted) throw UsageError("a prompt needs --model; a trace has its own");
    return;
  }
  if (!trace_file.empty() || weight_bits || sequences != 1 || step_tokens != 1) {
    throw UsageError(
        "--selection-trace, --sequences, --step-tokens and --weight-bits need --geometry; they do "
        "not apply to --model");
  }
  if (!prompted) throw UsageError("--model needs a prompt; give --prompt-file FILE");
}

ProfileSubject::ProfileSubject(const ProfileOptions& flags) : flags_(flags) {
  if (flags.synthetic()) {
    shape_ = find_model_shape(flags.geometry);
    geometry_ = shape_->geometry;
    trace_name_ = flags.trace_file.empty() ? default_selection_trace() : flags.trace_file;
    trace_ = SelectionTrace::load(trace_name_);
    return;
  }
  model_ = ModelConfig::load(flags.model_dir);
  geometry_ = model_->geometry();
}

Config ProfileSubject::defaults() const {
  Config config;
  config.device.name = "emulated";
  if (flags_.synthetic()) config.device.gpu = kUsualGpu;
  return config;
}

void ProfileSubject::check(const Config& config) {
  given_device_memory_ = config.memory.device_memory;
  config.validate_for(geometry_);
  if (flags_.synthetic() && config.device.name != "emulated" && config.device.name != "auto") {
    throw UsageError(
        fmt::format("device.name = \"{}\": allowed with --geometry: emulated", config.device.name));
  }
}

int ProfileSubject::largest_set(const Config& config) const {
  const auto tokens = static_cast<int32_t>(
      std::min<int64_t>(shape_ ? flags_.tokens : static_cast<int64_t>(prompt_.size()), INT32_MAX));
  int32_t largest = 1;
  for (const TokenCount& count : config.fac_tokens(geometry_.chunks())) {
    largest = std::max(largest, budget_of(count).of(tokens, 1));
  }
  return largest;
}

void ProfileSubject::prepare() {
  if (flags_.synthetic()) return;
  const auto tokenizer = load_tokenizer(flags_.model_dir, flags_.prompt);
  prompt_ = read_prompt(flags_.prompt, tokenizer.get(), model_->vocab_size);
  print_long_rope(ModelConfig::load(flags_.model_dir, std::ssize(prompt_) + flags_.max_steps()),
                  "a prompt and its steps");
}

void ProfileSubject::describe(ProfileReport& report) const {
  report.geometry = geometry_;
  report.subject = shape_ ? shape_->name : flags_.model_dir;
  report.weight_bits = shape_ ? flags_.weight_bits.value_or(kUsualWeightBits) : 0;
  report.trace = trace_name_;
  if (trace_) report.selections = selections_of(trace_name_, *trace_);
  report.compute = flags_.synthetic() ? "modelled" : "real";
  report.sequences = flags_.sequences;
  report.step_tokens = flags_.step_tokens;
  report.tokens = flags_.synthetic() ? flags_.tokens : static_cast<int64_t>(prompt_.size());
}

ProfileRun ProfileSubject::open(const std::string& name, Config config) const {
  return flags_.synthetic() ? open_synthetic(name, std::move(config))
                            : open_model(name, std::move(config));
}

ProfileRun ProfileSubject::open_synthetic(const std::string& name, Config config) const {
  ProfileRun run;
  run.name = name;
  if (lifts_budget(config)) {
    run.notes.push_back(
        fmt::format("Device memory is unlimited here: rows on the device take {}, regardless of "
                    "the memory of {}.",
                    format_bytes(full_kv_bytes_per_token(geometry_) *
                                 static_cast<uint64_t>(flags_.tokens * flags_.sequences)),
                    gpu_name(config)));
  }
  const SyntheticOptions options =
      emulated_options({.shape = *shape_,
                        .tokens = flags_.tokens,
                        .sequences = flags_.sequences,
                        .step_tokens = flags_.step_tokens,
                        .weight_bits = flags_.weight_bits.value_or(kUsualWeightBits),
                        .max_steps = flags_.max_steps()},
                       std::move(config));
  run.config = options.config;
  run.decode = std::make_unique<ProfiledSynthetic>(options, *trace_);
  return run;
}

ProfileRun ProfileSubject::open_model(const std::string& name, Config config) const {
  ProfileRun run;
  run.name = name;
  run.config = config;
  ProfiledModelOptions settings;
  settings.dir = flags_.model_dir;
  settings.config = config;
  settings.prompt = prompt_;
  settings.max_steps = flags_.max_steps();
  settings.slice_dims = [&](Model& model) {
    return choose_slices(model, config, flags_.model_dir, prompt_).dims;
  };
  Progress progress("prefill");
  settings.on_prefill = [&](int64_t done, int64_t total) { progress.update(done, total); };
  run.decode = std::make_unique<ProfiledModel>(settings, *model_);
  return run;
}

void add_late_notes(ProfileRun& run) {
  if (run.warmup.rises()) {
    run.notes.push_back(
        fmt::format("The hit rate still rose at the end of the warm-up, from {:.1f} to {:.1f} % in "
                    "eight steps: "
                    "warm hot rows are faster; raise --warmup.",
                    100 * run.warmup.before, 100 * run.warmup.after));
  }
  if (run.decode->dropped() > 0) {
    run.notes.push_back(
        fmt::format("{} operations were dropped, because a step had more than are stored.",
                    run.decode->dropped()));
  }
}

}  // namespace fasa
