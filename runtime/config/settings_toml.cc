#include "runtime/config/settings_toml.h"

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

constexpr std::array<std::string_view, 4> kSettings{"", "selection", "placement", "prefetch"};
constexpr std::array<std::string_view, 4> kMachine{"device", "memory", "weights", "link"};

template <size_t N>
bool is_one_of(const std::array<std::string_view, N>& tables, std::string_view table) {
  return std::find(tables.begin(), tables.end(), table) != tables.end();
}

}  // namespace

std::string settings_toml(const Config& config) {
  return toml_of(config, [](std::string_view table) { return is_one_of(kSettings, table); });
}

std::string plan_toml(const Config& config) {
  const nlohmann::json given = config_to_json(config);
  const nlohmann::json usual = config_to_json(Config());
  return toml_of(config, [&](std::string_view table) {
    const std::string name(table);
    return is_one_of(kSettings, table) ||
           (is_one_of(kMachine, table) && given.at(name) != usual.at(name));
  });
}

std::string config_toml(const Config& config) {
  return toml_of(config, [](std::string_view) { return true; });
}

}  // namespace fasa
