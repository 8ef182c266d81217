#include "tools/commands/tune_objective.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/llm/compute/open_model_device.h"
#include "runtime/llm/generation/generator.h"
#include "runtime/llm/generation/model_tokenizer.h"
#include "runtime/profile/profiled_decode.h"
#include "tools/commands/emulated_decode.h"
#include "tools/flags/load_model.h"
#include "tools/flags/prompt.h"
#include "tools/flags/slice_choice.h"
#include "tools/terminal/terminal.h"

namespace fasa {
namespace {

constexpr int kPrefillChunk = 512;

}  // namespace

void Deadline::check() const {
  if (Interrupts::came()) throw TimeUp("interrupted before one trial was done");
  if (left() <= 0) throw TimeUp("--time-limit is over");
}

SyntheticObjective::SyntheticObjective(Settings settings, const Config& config)
    : settings_(std::move(settings)),
      device_memory_(config.memory.device_memory),
      trace_(SelectionTrace::load(default_selection_trace())) {}

TuneMeasurement SyntheticObjective::measure(const Config& config, const Deadline& deadline) {
  Config given = config;
  given.memory.device_memory = device_memory_;
  ProfiledSynthetic decode(emulated_options({.shape = settings_.shape,
                                             .tokens = settings_.tokens,
                                             .weight_bits = settings_.weight_bits,
                                             .max_steps = kMaxWarmup + settings_.steps,
                                             .seed = settings_.seed},
                                            std::move(given)),
                           trace_);
  warm_up(decode, kUsualWarmup, kMaxWarmup, [&] { deadline.check(); });
  for (int i = 0; i < settings_.steps; ++i) {
    deadline.check();
    decode.step();
  }
  const Profile& profile = decode.profile();
  TuneMeasurement measured;
  measured.tpot_seconds = profile.seconds() / settings_.steps;
  measured.rows = profile.total().rows;
  measured.decode_steps = profile.steps();
  measured.hidden = profile.total_hidden();
  measured.wasted_bytes = static_cast<double>(profile.total_wasted_bytes()) / settings_.steps;
  return measured;
}

namespace {

std::vector<int32_t> ids_of(const std::string& dir, const std::string& prompt_file) {
  const auto tokenizer = open_tokenizer(dir);
  return read_prompt({.text = {}, .file = prompt_file, .ids_file = {}, .random_tokens = {}},
                     tokenizer.get(), ModelConfig::load(dir).vocab_size);
}

}  // namespace

GenerationObjective::GenerationObjective(const std::string& dir, const std::string& prompt_file,
                                         int steps, const Config& config)
    : dir_(dir),
      steps_(steps),
      device_(open_model_device(config.device_options(), ModelConfig::load(dir))),
      prompt_(ids_of(dir, prompt_file)),
      model_(load_model(dir, *device_, std::nullopt, config.weights,
                        {std::ssize(prompt_) + steps + 1, "a prompt and its steps"})) {
  if (device_->unified()) {
    throw UsageError(
        fmt::format("device {} has only one memory, so no rows are fetched and there is nothing to "
                    "tune; allowed: emulated, cuda",
                    config.device.name));
  }
  dims_ = choose_slices(model_, config, dir, prompt_).dims;
}

TuneMeasurement GenerationObjective::measure(const Config& config, const Deadline& deadline) {
  const RowDType row_dtype = config.placement.row_dtype.value_or(model_.config().row_dtype());
  Runtime runtime(*device_, config, geometry(), row_dtype, dims_, tokens() + steps_ + 1);
  GenerateOptions options;
  options.max_tokens = steps_ + 1;
  options.prefill_chunk = kPrefillChunk;
  options.on_prefill = [&](int64_t, int64_t) { deadline.check(); };
  const GenerateResult result = generate(model_, runtime, prompt_, options, nullptr);
  if (result.error) throw DeviceError(*result.error);
  deadline.check();
  if (result.decode_steps == 0) {
    throw UsageError(
        "the model ends the text at once, so there is no step to measure; give a prompt that the "
        "model continues");
  }
  TuneMeasurement measured;
  measured.decode_steps = static_cast<uint64_t>(result.decode_steps);
  measured.tpot_seconds = result.decode_seconds / static_cast<double>(result.decode_steps);
  measured.rows = runtime.metrics().rows;
  return measured;
}

}  // namespace fasa
