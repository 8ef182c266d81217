#include "runtime/profile/profiled_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/llm/compute/open_model_device.h"
#include "runtime/llm/generation/sampler.h"

namespace fasa {
namespace {

void check(const ProfiledModelOptions& settings, const ModelConfig& model) {
  if (settings.prompt.empty()) {
    throw UsageError("the prompt is empty; give at least one token");
  }
  const auto needed = static_cast<int64_t>(settings.prompt.size()) + settings.max_steps;
  if (needed > model.max_positions) {
    throw UsageError(
        fmt::format("prompt ({} tokens) + steps ({}) = {} exceed the model's {} positions; shorten "
                    "the prompt, or lower the number of steps",
                    settings.prompt.size(), settings.max_steps, needed, model.max_positions));
  }
}

}  // namespace

ProfiledModel::ProfiledModel(const ProfiledModelOptions& settings, const ModelConfig& model)
    : ProfiledDecode((check(settings, model), model.attention_layers())),
      inner_(settings.open ? settings.open()
                           : open_model_device(settings.config.device_options(), model)),
      device_(*inner_),
      model_(Model::load(settings.dir, device_, std::nullopt, settings.config.weights,
                         std::ssize(settings.prompt) + settings.max_steps)),
      begun_(device_.create_event()),
      ended_(device_.create_event()) {
  Config config = settings.config;
  config.device.graphs = false;  // operations of a graph have no times of their own
  const auto prompt = static_cast<int64_t>(settings.prompt.size());
  const auto chunk = static_cast<int>(std::min<int64_t>(settings.prefill_chunk, prompt));
  runtime_ = std::make_unique<Runtime>(device_, config, model_.config().geometry(),
                                       config.placement.row_dtype.value_or(model.row_dtype()),
                                       settings.slice_dims(model_), prompt + settings.max_steps);
  sequence_ = runtime_->create();
  model_.reserve(chunk);
  runtime_->reserve(sequence_, prompt + settings.max_steps, chunk);
  prefill(settings);
}

ProfiledModel::~ProfiledModel() { stop_recording(); }

void ProfiledModel::prefill(const ProfiledModelOptions& settings) {
  const std::span prompt(settings.prompt);
  for (size_t done = 0; done < prompt.size();) {
    const size_t count =
        std::min(static_cast<size_t>(settings.prefill_chunk), prompt.size() - done);
    const bool last = done + count == prompt.size();
    const StepSequence step[] = {{sequence_, static_cast<int>(count), StepMode::kPrefill}};
    const auto logits =
        model_.step(*runtime_, prompt.subspan(done, count), step, {.no_logits = !last});
    if (last) token_ = Sampler({}).next(logits);
    done += count;
    if (settings.on_prefill) {
      settings.on_prefill(static_cast<int64_t>(done), static_cast<int64_t>(prompt.size()));
    }
  }
  device_.take_overlap();
}

ProfiledDecode::Taken ProfiledModel::run_step() {
  using Clock = std::chrono::steady_clock;
  runtime_->reset_metrics();
  const StepSequence step[] = {{sequence_, 1, StepMode::kDecode}};
  device_.record(begun_.view(), model_.stream());
  const auto wall = Clock::now();
  token_ = Sampler({}).next(model_.step(*runtime_, {&token_, 1}, step));
  const double wall_seconds = std::chrono::duration<double>(Clock::now() - wall).count();
  device_.record(ended_.view(), model_.stream());
  device_.synchronize(ended_.view());
  Taken taken;
  taken.fetch = runtime_->metrics();  // waits for the other streams
  taken.overlap = device_.take_overlap();
  taken.seconds = !device_.unified()
                      ? device_.seconds_at(ended_.view()) - device_.seconds_at(begun_.view())
                      : wall_seconds;
  return taken;
}

}  // namespace fasa
