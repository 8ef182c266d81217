#include "bindings/python/core/config.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "bindings/python/core/json_value.h"
#include "runtime/base/error.h"
#include "runtime/base/units.h"
#include "runtime/config/renamed_keys.h"
#include "runtime/config/settings_toml.h"
#include "runtime/io/nearest.h"

namespace fasa::python {
namespace {

std::string attribute_of(const ConfigOption& option) {
  std::string name = option.variable().substr(std::string("FASA_").size());
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

const ConfigOption& find_attribute(const std::string& name) {
  std::vector<std::string> names;
  for (const ConfigOption& option : config_options()) {
    names.push_back(attribute_of(option));
    if (names.back() == name) return option;
  }
  std::string hint = renamed_hint(name);
  if (hint.empty()) hint = nearest_hint(name, names);
  throw UsageError(
      fmt::format("unknown option {}{}; docs/configuration.md lists all options", name, hint));
}

// The option's value; a size is its number of bytes, whatever its size.
nb::object value_of(const ConfigOption& option, const Config& config) {
  const auto value = option.get(config);
  if (option.type == "SIZE" && value.is_string()) {
    if (const auto bytes = parse_bytes(value.get<std::string>())) return nb::int_(*bytes);
  }
  return to_python(value);
}

void add_options(nb::class_<PyConfig>& cls) {
  for (const ConfigOption& option : config_options()) {
    const ConfigOption* entry = &option;
    const std::string name = attribute_of(option);
    const std::string doc = fmt::format("[{}] {}: {} Allowed: {}.", option.table, option.key,
                                        option.help, option.allowed);
    cls.def_prop_rw(
        name.c_str(), [entry](const PyConfig& self) { return value_of(*entry, self.config()); },
        [name](PyConfig& self, nb::object value) { self.set(name, value); },
        nb::for_setter(nb::arg("value").none()), doc.c_str());
  }
}

// The table of options, for generating a command's flags: (flag, attribute, table, type, help).
nb::list option_table() {
  nb::list rows;
  for (const ConfigOption& option : config_options()) {
    rows.append(nb::make_tuple(option.flag_name(), attribute_of(option), std::string(option.table),
                               std::string(option.type), std::string(option.help)));
  }
  return rows;
}

PyConfig from_flags(const std::optional<std::string>& path, const nb::dict& texts) {
  ConfigSources sources{.file = path.value_or(""), .environment = fasa_environment()};
  for (const auto& [name, text] : texts) {
    sources.flags.push_back(
        {&find_attribute(nb::cast<std::string>(name)), nb::cast<std::string>(text)});
  }
  return PyConfig(std::move(sources));
}

PyConfig with_options(ConfigSources sources, const nb::kwargs& options) {
  PyConfig config(std::move(sources));
  config.update(options);
  return config;
}

}  // namespace

void PyConfig::take(ConfigSources& sources, const std::string& name, nb::handle value) {
  const ConfigOption& option = find_attribute(name);
  std::erase_if(sources.values, [&](const GivenValue& given) { return given.option == &option; });
  // None removes the option's value.
  if (!value.is_none()) sources.values.push_back({&option, to_json(value, option.path())});
}

void PyConfig::set(const std::string& name, nb::handle value) {
  ConfigSources changed = sources_;
  take(changed, name, value);
  rebuild(changed);
  sources_ = std::move(changed);
}

void PyConfig::update(const nb::kwargs& options) {
  ConfigSources changed = sources_;
  for (const auto& [name, value] : options) take(changed, nb::cast<std::string>(name), value);
  rebuild(changed);
  sources_ = std::move(changed);
}

namespace {

void add_conversions(nb::class_<PyConfig>& cls) {
  cls.def(
      "__init__",
      [](PyConfig* self, const nb::kwargs& options) {
        new (self) PyConfig(with_options({}, options));
      },
      nb::arg("options"), "Options by name; all others keep their defaults.");
  cls.def_static(
      "load",
      [](const std::optional<std::string>& path, bool environment, const nb::kwargs& options) {
        ConfigSources sources{.file = path.value_or("")};
        if (environment) sources.environment = fasa_environment();
        return with_options(std::move(sources), options);
      },
      nb::arg("path") = nb::none(), nb::kw_only(), nb::arg("environment") = true,
      nb::arg("options"),
      "Loads a config. Later sources override earlier ones: defaults, TOML file, FASA_* variables, "
      "options by name.");
  cls.def_static(
      "from_toml",
      [](const std::string& text) { return PyConfig({.toml = text, .toml_name = "config"}); },
      nb::arg("text"), "Reads a config from the text of a TOML file.");
  cls.def(
      "to_toml", [](const PyConfig& self) { return config_toml(self.config()); },
      "Returns a TOML file with all options.");
  cls.def(
      "to_dict", [](const PyConfig& self) { return to_python(config_to_json(self.config())); },
      "The form of `fasa config`: one dictionary per table.");
}

// Values that depend on a model.
void add_decisions(nb::class_<PyConfig>& cls) {
  cls.def(
      "chunks_of",
      [](const PyConfig& self, const Geometry& geometry) {
        return self.config().effective_tip_chunks(geometry.chunks());
      },
      nb::arg("geometry"), "Number of frequency chunks per head that the slices hold.");
  cls.def(
      "effective_fine_chunks",
      [](const PyConfig& self) { return self.config().effective_fine_chunks(); },
      "Number of these in int4.");
  cls.def(
      "low_bit_tokens_of",
      [](const PyConfig& self, const Geometry& geometry) {
        Config decided = self.config();
        decided.selection.low_bit_tokens = decided.low_bit_tokens(geometry.chunks());
        return to_python(find_option("selection", "low_bit_tokens")->get(decided));
      },
      nb::arg("geometry"),
      "low_bit_tokens for that model, a count or a share, with \"auto\" resolved.");
  cls.def(
      "fac_tokens_of",
      [](const PyConfig& self, const Geometry& geometry) -> nb::object {
        const Config& config = self.config();
        const auto& given = config.selection.fac_tokens;
        if (!given.empty()) return to_python(find_option("selection", "fac_tokens")->get(config));
        return nb::cast(count_text(config.fac_tokens(geometry.chunks()).front()));
      },
      nb::arg("geometry"),
      "fac_tokens for that model, with \"auto\" resolved to a text such as \"320 to 1024\".");
}

void add_copies(nb::class_<PyConfig>& cls) {
  cls.def("update", &PyConfig::update, nb::arg("options"), "Sets several options at once.");
  cls.def("__copy__", [](const PyConfig& self) { return PyConfig(self); });
  cls.def(
      "__deepcopy__", [](const PyConfig& self, nb::handle) { return PyConfig(self); },
      nb::arg("memo"));
  cls.def("__repr__", [](const PyConfig& self) {
    return fmt::format("fasa.Config({})", config_to_json(self.config()).dump());
  });
  cls.def(
      "__eq__",
      [](const PyConfig& self, nb::handle other) {
        return nb::isinstance<PyConfig>(other) &&
               config_to_json(self.config()) ==
                   config_to_json(nb::cast<const PyConfig&>(other).config());
      },
      nb::arg("other").none());
  cls.attr("__hash__") = nb::none();
}

}  // namespace

void add_config(nb::module_& module) {
  nb::class_<PyConfig> cls(module, "Config",
                           "All settings of the runtime, with one attribute per option.");
  add_conversions(cls);
  add_decisions(cls);
  add_copies(cls);
  add_options(cls);
  module.def("option_table", option_table);
  module.def("config_from_flags", from_flags, nb::arg("path").none(), nb::arg("texts"));
}

}  // namespace fasa::python
