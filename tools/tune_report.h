// What `fasa tune` found, for people, for programs and as a config file.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/tune_objective.h"

namespace fasa {

struct TuneTrial {
  Config config;
  std::optional<TuneMeasurement> measured;  // none: it did not fit
};

struct TuneReport {
  std::string model;
  int64_t tokens = 0;
  std::string machine;
  bool exhausted = false;  // all there is was tried
  double seconds = 0;
  std::vector<TuneTrial> trials;  // the first is what was given
  size_t best = 0;                // of trials, one that was measured

  const TuneTrial& best_trial() const { return trials[best]; }
};

// A config file that --config takes, what was measured in its comments.
std::string to_toml(const TuneReport& report);
nlohmann::json to_json(const TuneReport& report);
std::string to_table(const TuneReport& report);

}  // namespace fasa
