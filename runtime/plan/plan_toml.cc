// The recommended settings as a config file.
#include <fmt/format.h>

#include "runtime/config/settings_toml.h"
#include "runtime/plan/planner.h"

namespace fasa {

std::string recommended_toml(const PlanOptions& request, const Plan& plan) {
  if (!plan.recommended) return "";
  const PlanOption& option = plan.options[*plan.recommended];
  std::string text = fmt::format("# fasa plan: {}, {} tokens, {}\n", request.model.name,
                                 request.tokens, request.machine.name);
  if (option.config.ranks_chunks(request.model.geometry.chunks())) {
    text += "# These slices need an FC map (fasa calibrate).\n";
  }
  Config config = option.config;
  // With auto, the runtime takes more than the guaranteed hot rows while memory is free.
  if (config.placement.rows != RowPlacement::kDevice && option.extra_hot_rows == 0) {
    config.placement.hot_rows = option.hot_rows;
  }
  if (!request.weights && request.weight_bits != 16) {
    text += fmt::format(
        "# Weights were supposed in {} bits: serve a model that has them so, or set\n"
        "# [weights] format.\n",
        request.weight_bits);
  }
  return text + plan_toml(config);
}

}  // namespace fasa
