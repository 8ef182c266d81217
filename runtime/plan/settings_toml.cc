#include "runtime/plan/settings_toml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "runtime/config/config_options.h"

namespace fasa {
namespace {

// JSON's scalars and arrays are valid TOML. `wanted`: whether to write a table.
template <typename Wanted>
std::string toml_of(const Config& config, const Wanted& wanted) {
  std::string lines;
  std::string_view open;
  for (const ConfigOption& option : config_options()) {
    if (!wanted(option.table)) continue;
    const std::string text = option.get(config).dump();
    if (text == "null" || text == "\"\"") continue;
    if (option.table != open) lines += fmt::format("\n[{}]\n", option.table);
    open = option.table;
    lines += fmt::format("{} = {}\n", option.key, text);
  }
  return lines;
}

}  // namespace

std::string settings_toml(const Config& config) {
  constexpr std::array<std::string_view, 4> kTables{"", "selection", "placement", "prefetch"};
  return toml_of(config, [&](std::string_view table) {
    return std::find(kTables.begin(), kTables.end(), table) != kTables.end();
  });
}

std::string config_toml(const Config& config) {
  return toml_of(config, [](std::string_view) { return true; });
}

}  // namespace fasa
