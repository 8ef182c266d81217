#include "runtime/plan/settings_toml.h"

#include <fmt/format.h>

#include <span>
#include <string_view>

#include "runtime/config_options.h"

namespace fasa {
namespace {

// JSON's scalars and arrays are TOML's.
std::string table(const Config& config, std::string_view name,
                  std::span<const std::string_view> keys) {
  std::string lines = fmt::format("\n[{}]\n", name);
  for (const std::string_view key : keys) {
    const nlohmann::json value = find_option(name, key)->get(config);
    const std::string text = value.dump();
    if (text == "null" || text == "\"\"") continue;
    lines += fmt::format("{} = {}\n", key, text);
  }
  return lines;
}

}  // namespace

std::string settings_toml(const Config& config) {
  constexpr std::string_view kSelection[] = {"kind",       "slice",        "slice_dtype",
                                             "tip_chunks", "fac_tokens",   "sinks",
                                             "recent",     "dense_layers", "map"};
  constexpr std::string_view kPlacement[] = {"rows", "row_dtype", "hot_rows", "replacement"};
  constexpr std::string_view kPrefetch[] = {"depth", "predictor", "streams"};
  return fmt::format("preset = {}\n", nlohmann::json(config.preset).dump()) +
         table(config, "selection", kSelection) + table(config, "placement", kPlacement) +
         table(config, "prefetch", kPrefetch);
}

}  // namespace fasa
