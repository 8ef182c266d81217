// The recommended settings, written with the names and forms of the table of options.
#include <fmt/format.h>

#include <span>
#include <string_view>

#include "runtime/config_options.h"
#include "runtime/plan/planner.h"

namespace fasa {
namespace {

// JSON's scalars and arrays are TOML's; options that are not set are left out.
std::string lines_of(const Config& config, std::string_view table,
                     std::span<const std::string_view> keys) {
  std::string lines;
  for (const std::string_view key : keys) {
    const nlohmann::json value = find_option(table, key)->get(config);
    if (!value.is_null()) lines += fmt::format("{} = {}\n", key, value.dump());
  }
  return lines;
}

std::string selection_table(const Config& config) {
  constexpr std::string_view kKeys[] = {"kind",       "slice", "slice_dtype", "tip_chunks",
                                        "fac_tokens", "sinks", "recent",      "dense_layers"};
  return "\n[selection]\n" + lines_of(config, "selection", kKeys);
}

std::string placement_table(Config config, int hot_rows) {
  constexpr std::string_view kKeys[] = {"rows", "row_dtype", "hot_rows"};
  if (config.placement.rows != RowPlacement::kDevice) config.placement.hot_rows = hot_rows;
  return "\n[placement]\n" + lines_of(config, "placement", kKeys);
}

std::string prefetch_table(const Config& config) {
  constexpr std::string_view kKeys[] = {"streams"};
  return "\n[prefetch]\n" + lines_of(config, "prefetch", kKeys);
}

}  // namespace

std::string recommended_toml(const PlanRequest& request, const Plan& plan) {
  if (!plan.recommended) return "";
  const PlanOption& option = plan.options[*plan.recommended];
  std::string text = fmt::format("# fasa plan: {}, {} tokens, {}\n", request.model.name,
                                 request.tokens, request.machine.name);
  const bool fasa = option.config.selection.kind == SelectionKind::kFasa;
  if (fasa && option.chunks < request.model.geometry.chunks()) {
    text += "# Slices of fewer than all frequency chunks need an FC map (fasa calibrate).\n";
  }
  text += fmt::format("preset = \"{}\"\n", option.config.preset);
  text += selection_table(option.config);
  text += placement_table(option.config, option.hot_rows);
  return text + prefetch_table(option.config);
}

}  // namespace fasa
