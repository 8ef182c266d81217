// fasa.Config: every option of the table is an attribute.
#pragma once

#include <nanobind/nanobind.h>

#include <map>
#include <string>

#include "runtime/config/config_load.h"

namespace fasa::python {

namespace nb = nanobind;

// The given values and the validated config made from them. An invalid change leaves both
// unchanged.
class PyConfig {
 public:
  explicit PyConfig(ConfigSources sources) : sources_(std::move(sources)) { rebuild(sources_); }

  // Names are those of the environment variables in lower case, without FASA_.
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
