// fasa.Config: options from the one table, each an attribute.
#pragma once

#include <nanobind/nanobind.h>

#include <map>
#include <string>

#include "runtime/config/config_load.h"

namespace fasa::python {

namespace nb = nanobind;

// What was given, and the validated config that comes of it. A change that does not validate
// leaves both as they were.
class PyConfig {
 public:
  explicit PyConfig(ConfigSources sources) : sources_(std::move(sources)) { rebuild(sources_); }

  // Named as the environment's variables are, in small letters and without FASA_.
  void set(const std::string& name, nb::handle value);
  void update(const nb::kwargs& options);
  const Config& config() const { return config_; }

 private:
  void rebuild(const ConfigSources& sources) { config_ = load_config(sources); }
  static void take(ConfigSources& sources, const std::string& name, nb::handle value);

  ConfigSources sources_;
  Config config_;
};

void add_config(nb::module_& module);

}  // namespace fasa::python
