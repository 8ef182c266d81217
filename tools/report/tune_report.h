// The results of `fasa tune`, as a table, as JSON and as a config file.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/commands/tune_objective.h"

namespace fasa {

struct TuneTrial {
  Config config;
  std::optional<TuneMeasurement> measured;  // none: the config did not fit
};

struct TuneReport {
  std::string model;
  int64_t tokens = 0;
  std::string machine;
  bool exhausted = false;  // all settings were tried
  double seconds = 0;
  std::vector<TuneTrial> trials;  // the first has the given settings
  size_t best = 0;                // index of the best measured trial
  bool given_defaults = false;    // the given settings are the defaults

  const TuneTrial& best_trial() const { return trials[best]; }
};

// A config file for --config, with the measurements in comments.
std::string to_toml(const TuneReport& report);
nlohmann::json to_json(const TuneReport& report);
std::string to_table(const TuneReport& report);

}  // namespace fasa
