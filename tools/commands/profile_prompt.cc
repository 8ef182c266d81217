#include "tools/commands/profile_prompt.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/base/units.h"
#include "runtime/catalog/geometry_catalog.h"
#include "tools/commands/emulated_decode.h"
#include "tools/terminal/progress.h"

namespace fasa {
namespace {

PlanOptions plan_options(const ProfileOptions& flags, const Config& config, int chunk) {
  PlanOptions request;
  request.model = find_model_shape(flags.geometry);
  request.config = config;
  request.machine = make_plan_machine(config, {});
  request.tokens = flags.tokens;
  request.weight_bits = flags.weight_bits.value_or(kUsualWeightBits);
  if (request.weight_bits == 0) request.weights = PlannedWeights{};
  request.row_dtype = config.placement.row_dtype.value_or(request.row_dtype);
  if (chunk != kAutomaticChunk) request.prefill_chunk = chunk;
  return request;
}

double ratio(double value, double to) { return to > 0 ? value / to : 0; }

}  // namespace

PromptProfile profile_prompt(const ProfileOptions& flags, const Config& config, int chunk) {
  if (!flags.synthetic()) {
    throw UsageError(
        "--prefill needs --geometry; fasa generate --stats shows the time of a model's prompt");
  }
  PromptProfile profile{.request = plan_options(flags, config, chunk), .plan = {}, .run = {}};
  profile.plan = make_plan(profile.request).option(config.preset);
  const SyntheticOptions options =
      emulated_options({.shape = profile.request.model,
                        .tokens = flags.tokens,
                        .weight_bits = profile.request.weight_bits,
                        .max_steps = 1,
                        .prefill_chunk = profile.plan.prompt.piece > 0 ? profile.plan.prompt.piece
                                                                       : profile.plan.prompt.chunk},
                       config);
  Progress progress("prefill");
  profile.run = synthetic_prompt(
      options, {.chunk = profile.plan.prompt.chunk, .piece = profile.plan.prompt.piece},
      [&](int64_t done, int64_t total) { progress.update(done, total); });
  progress.clear();
  return profile;
}

nlohmann::json to_json(const PromptProfile& profile) {
  const PromptPlan& plan = profile.plan.prompt;
  const SyntheticPromptResult& run = profile.run;
  return {{"model", profile.request.model.name},
          {"machine", profile.request.machine.name},
          {"tokens", profile.request.tokens},
          {"weight_bits", profile.request.weight_bits},
          {"chunk", profile.plan.prompt.chunk},
          {"piece", profile.plan.prompt.piece},
          {"seconds", run.seconds},
          {"planned_seconds", plan.seconds},
          {"product_seconds", plan.products},
          {"over_products", ratio(run.seconds, plan.products)},
          {"operations", plan.operations},
          {"state_bytes", plan.state_bytes},
          {"wide_waves", run.wide_waves},
          {"row_bytes_to_device", run.rows.prompt},
          {"row_bytes_to_host", run.rows.write_back},
          {"link",
           {{"to_device_bytes", run.transfers.h2d_bytes},
            {"to_host_bytes", run.transfers.d2h_bytes},
            {"to_device_seconds", run.transfers.h2d_seconds},
            {"to_host_seconds", run.transfers.d2h_seconds}}}};
}

std::string to_table(const PromptProfile& profile) {
  const PromptPlan& plan = profile.plan.prompt;
  const SyntheticPromptResult& run = profile.run;
  std::string text =
      fmt::format("{}, a prompt of {} tokens in chunks of {}, on {}\n", profile.request.model.name,
                  profile.request.tokens, profile.plan.prompt.chunk, profile.request.machine.name);
  text += fmt::format("  first token after {} (fasa plan: {})\n", format_seconds(run.seconds),
                      format_seconds(plan.seconds));
  text += fmt::format(
      "  products    {} at {:g} TFLOP/s (data sheet), attention's at {:.3g}; the prompt takes "
      "{:.2f} times that\n",
      format_seconds(plan.products), profile.request.machine.rates.operations / 1e12,
      1e-12 / profile.request.machine.rates.prompt_attended(1), ratio(run.seconds, plan.products));
  text += fmt::format("  states      {} of softmax states, in {} waves\n",
                      format_bytes(plan.state_bytes), run.wide_waves ? "long" : "short");
  if (run.rows.write_back == 0) return text;
  return text +
         fmt::format(
             "  link        {} of rows to the host, {} back to the device ({:.1f} times); "
             "busy for {}\n",
             format_bytes(run.rows.write_back), format_bytes(run.rows.prompt),
             ratio(static_cast<double>(run.rows.prompt), static_cast<double>(run.rows.write_back)),
             format_seconds(run.transfers.h2d_seconds));
}

}  // namespace fasa
