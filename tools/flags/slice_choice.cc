#include "tools/flags/slice_choice.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/capture/calibration.h"
#include "tools/terminal/progress.h"

namespace fasa {
namespace {

SliceChoice from_prompt(Model& model, const Config& config, std::span<const int32_t> prompt,
                        const std::string& missing, int count) {
  log_notice(
      fmt::format("{} does not exist; making an FC map from the prompt (make a permanent one with "
                  "fasa calibrate)",
                  missing));
  const auto start = std::chrono::steady_clock::now();
  Progress progress("calibration");
  const FcMap map = calibrate_from_prompt(
      model, prompt, config.selection.sinks, config.selection.recent,
      [&](CalibrationPhase, int64_t done, int64_t total) { progress.update(done, total); });
  progress.clear();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  log_notice(fmt::format("FC map made from {} tokens in {:.1f} s", map.tokens, seconds));
  return {.dims = map.slice_dims(count, config.effective_fine_chunks()),
          .map = "(made from the prompt)",
          .seconds = seconds};
}

}  // namespace

SliceChoice choose_slices(Model& model, const Config& config, const std::string& model_dir,
                          std::span<const int32_t> prompt) {
  if (auto slices = model_slices(model, config, model_dir)) {
    return {.dims = std::move(slices->dims), .map = std::move(slices->map), .seconds = 0};
  }
  const int count = config.effective_tip_chunks(model.config().geometry().chunks());
  return from_prompt(model, config, prompt, usual_map(model_dir), count);
}

}  // namespace fasa
