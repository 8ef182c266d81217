#include "runtime/config/config_load.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/units.h"
#include "runtime/config/renamed_keys.h"
#include "runtime/io/input_file.h"
#include "runtime/io/nearest.h"

namespace fasa {
// Thrown when a toml++ assertion fails.
struct TomlAssertion {};
[[noreturn]] void fail_toml_assertion() { throw TomlAssertion{}; }
}  // namespace fasa

// Some malformed texts violate assertions of toml++ 3.3 (found by fuzzing: a key may have no
// beginning). With NDEBUG the assertions are assumptions for the compiler, hence undefined
// behaviour on bad input. So they stay on here, and throw. No other file includes toml++.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(condition) ((condition) ? static_cast<void>(0) : ::fasa::fail_toml_assertion())
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

namespace fasa {
namespace {

using Json = nlohmann::json;

// A value and its source: "fasa.toml:3: ", "FASA_SINKS: ", "--sinks: ".
struct Given {
  const ConfigOption* option;
  Json value;
  std::string place;
};

// FASA_* variables that are not options of the config.
constexpr std::string_view kOtherVariables[] = {"FASA_TARGET"};

Json to_json(const toml::node& node) {
  if (const auto* value = node.as_integer()) return value->get();
  if (const auto* value = node.as_floating_point()) return value->get();
  if (const auto* value = node.as_boolean()) return value->get();
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* array = node.as_array()) {
    Json json = Json::array();
    for (const toml::node& element : *array) json.push_back(to_json(element));
    return json;
  }
  return nullptr;  // tables and dates: no option takes them
}

std::string shown(const toml::node& node) {
  if (node.is_table()) return "a table";
  const Json value = to_json(node);
  if (value.is_null()) return "a date or time";
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string location_of(const std::string& file, const toml::source_region& source) {
  return fmt::format("{}:{}: ", file, source.begin.line);
}

[[noreturn]] void fail(const std::string& place, const ConfigOption& option,
                       const std::string& given, const std::string& hint) {
  throw UsageError(
      fmt::format("{}{} = {}: allowed: {}{}", place, option.path(), given, option.allowed, hint));
}

void check(const Given& given, const std::string& given_text) {
  Config scratch;
  if (given.option->set(scratch, given.value)) return;
  const Json& value = given.value;
  const std::string text = value.is_string()
                               ? value.get<std::string>()
                               : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  const bool size = given.option->type == "SIZE";
  fail(given.place, *given.option, given_text, size ? missing_unit_hint(text) : "");
}

[[noreturn]] void fail_unknown(const std::string& place, std::string_view table,
                               std::string_view key) {
  const std::string path = table.empty() ? std::string(key) : fmt::format("{}.{}", table, key);
  std::vector<std::string> names;
  for (const ConfigOption& option : config_options()) {
    if (option.key == key) {
      throw UsageError(fmt::format("{}unknown key {}; {} belongs {}", place, path, key,
                                   option.table.empty()
                                       ? "to the top of the file, before the tables"
                                       : fmt::format("in the table [{}]", option.table)));
    }
    if (option.table == table) names.emplace_back(option.key);
  }
  std::string hint = renamed_hint(key);
  if (hint.empty()) hint = nearest_hint(key, names);
  if (hint.empty()) {
    names.clear();
    for (const ConfigOption& option : config_options()) names.push_back(option.path());
    hint = nearest_hint(path, names);
  }
  throw UsageError(
      fmt::format("{}unknown key {}{}; docs/configuration.md lists all keys", place, path, hint));
}

[[noreturn]] void fail_unknown_table(const std::string& place, std::string_view table) {
  std::vector<std::string> names;
  for (const ConfigOption& option : config_options()) {
    const std::string name(option.table);
    if (!name.empty() && (names.empty() || names.back() != name)) names.push_back(name);
  }
  throw UsageError(fmt::format("{}unknown table [{}]{}; allowed: {}", place, table,
                               nearest_hint(table, names), fmt::join(names, ", ")));
}

bool is_table_name(std::string_view name) {
  for (const ConfigOption& option : config_options()) {
    if (!name.empty() && option.table == name) return true;
  }
  return false;
}

void read_key(const std::string& name, std::string_view table, std::string_view key,
              const toml::node& node, std::vector<Given>& out) {
  const std::string place = location_of(name, node.source());
  const ConfigOption* option = find_option(table, key);
  if (option == nullptr) fail_unknown(place, table, key);
  Given given{option, to_json(node), place};
  check(given, shown(node));
  out.push_back(std::move(given));
}

// The parser nests a table for each dot of a key and destroys them recursively, so 200,000 dots
// overflow the stack. No option has more than one dot.
void check_toml_depth(std::string_view text, const std::string& name) {
  constexpr auto kMaxDots = 64;
  size_t number = 1;
  for (size_t at = 0; at < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = line.find('=');
    const bool header = line.find_first_not_of(" \t") == line.find('[');
    const bool inline_table = line.find('{') != std::string_view::npos;
    if (equals == std::string_view::npos && !header && !inline_table) continue;
    const std::string_view keys = header || inline_table ? line : line.substr(0, equals);
    if (std::count(keys.begin(), keys.end(), '.') <= kMaxDots) continue;
    throw UsageError(
        fmt::format("{}:{}: a key has more than {} parts; "
                    "docs/configuration.md lists all keys",
                    name, number, kMaxDots));
  }
}

void read_toml(std::string_view text, const std::string& name, std::vector<Given>& out) {
  check_toml_depth(text, name);
  toml::table root;
  try {
    root = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    const std::string why(error.description());
    // What the parser takes a text without quotes for.
    const bool bare =
        std::ranges::any_of(std::array{" value:", " boolean:", " floating-point:"},
                            [&](const char* kind) { return why.find(kind) != std::string::npos; });
    throw UsageError(fmt::format("{}not TOML: {}{}", location_of(name, error.source()), why,
                                 bare ? "; texts need quotes" : ""));
  } catch (const TomlAssertion&) {
    throw UsageError(
        fmt::format("{}: not TOML: a key or value starts with an invalid character", name));
  }
  for (const auto& [key, node] : root) {
    if (is_table_name(key.str())) {
      const toml::table* table = node.as_table();
      if (table == nullptr) {
        throw UsageError(fmt::format("{}{} = {}: allowed: a table, [{}]",
                                     location_of(name, node.source()), key.str(), shown(node),
                                     key.str()));
      }
      for (const auto& [inner, value] : *table) {
        read_key(name, key.str(), inner.str(), value, out);
      }
    } else if (node.is_table() && find_option("", key.str()) == nullptr) {
      fail_unknown_table(location_of(name, node.source()), key.str());
    } else {
      read_key(name, "", key.str(), node, out);
    }
  }
}

// Parses an integer, a float, or a list of these; other text stays a string.
Json scalar_from_text(std::string_view text) {
  const char* end = text.data() + text.size();
  int64_t integer = 0;
  if (const auto r = std::from_chars(text.data(), end, integer);
      r.ec == std::errc() && r.ptr == end) {
    return integer;
  }
  if (const auto count = parse_count(text)) return *count;  // 128k
  double number = 0;
  if (const auto r = std::from_chars(text.data(), end, number);
      r.ec == std::errc() && r.ptr == end) {
    return number;
  }
  return std::string(text);
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Value of a flag or variable: 256, 0.25, 6GiB, [0, 1] or 0,1.
Json value_from_text(const ConfigOption& option, const std::string& text) {
  if (option.text) return text;
  std::string_view rest = trimmed(text);
  if (option.type == "SIZE") return std::string(rest);
  const bool bracketed = rest.size() >= 2 && rest.front() == '[' && rest.back() == ']';
  if (bracketed) rest = trimmed(rest.substr(1, rest.size() - 2));
  if (!bracketed && rest.find(',') == std::string_view::npos) return scalar_from_text(rest);
  Json array = Json::array();
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    array.push_back(scalar_from_text(trimmed(rest.substr(0, comma))));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return array;
}

void add_text(const ConfigOption& option, const std::string& text, const std::string& place,
              std::vector<Given>& out) {
  Given given{&option, value_from_text(option, text), place};
  check(given, fmt::format("\"{}\"", text));
  out.push_back(std::move(given));
}

void read_environment(const std::map<std::string, std::string>& environment,
                      std::vector<Given>& out) {
  std::vector<std::string> names;
  for (const ConfigOption& option : config_options()) names.push_back(option.variable());
  for (const auto& [name, text] : environment) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at != names.end()) {
      add_text(config_options()[static_cast<size_t>(at - names.begin())], text, name + ": ", out);
    } else if (std::find(std::begin(kOtherVariables), std::end(kOtherVariables), name) ==
               std::end(kOtherVariables)) {
      const std::string renamed = renamed_hint(name);
      if (!renamed.empty()) {
        throw UsageError(fmt::format("the variable {} is not an option{}", name, renamed));
      }
      log_warning(fmt::format("the variable {} is not an option{}; ignored", name,
                              nearest_hint(name, names)));
    }
  }
}

Config build(const std::vector<Given>& all, const Config& defaults) {
  Config config = defaults;
  std::map<std::string, std::string> places;
  for (const Given& given : all) places[given.option->path()] = given.place;
  try {
    // The last preset applies, whatever its source; then every explicit key overrides it.
    for (const Given& given : all) {
      if (given.option->path() == "preset") given.option->set(config, given.value);
    }
    config.apply_preset();
    for (const Given& given : all) given.option->set(config, given.value);
    config.validate();
  } catch (const ConfigError& error) {
    throw UsageError(places[error.key()] + error.what());
  }
  config.places = std::move(places);
  return config;
}

std::string read_config_file(const std::string& path) {
  try {
    return read_file(path, {.what = "config file"});
  } catch (const InputError& error) {
    throw UsageError(fmt::format("{}; give the path of a TOML file", error.what()));
  }
}

}  // namespace

Config load_config(const ConfigSources& sources) {
  std::vector<Given> all;
  if (!sources.file.empty()) read_toml(read_config_file(sources.file), sources.file, all);
  if (!sources.toml.empty()) read_toml(sources.toml, sources.toml_name, all);
  read_environment(sources.environment, all);
  for (const GivenFlag& flag : sources.flags) {
    add_text(*flag.option, flag.text, flag.option->flag_name() + ": ", all);
  }
  for (const GivenValue& value : sources.values) {
    Given given{value.option, value.value, ""};
    check(given, value.value.dump(-1, ' ', false, Json::error_handler_t::replace));
    all.push_back(std::move(given));
  }
  return build(all, sources.defaults);
}

std::map<std::string, std::string> fasa_environment() {
  constexpr std::string_view kPrefix = "FASA_";
  std::map<std::string, std::string> found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (text.starts_with(kPrefix) && equals != std::string_view::npos) {
      found.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return found;
}

}  // namespace fasa
