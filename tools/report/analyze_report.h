// The results of `fasa analyze`, as JSON and as tables.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/config/config.h"
#include "runtime/lab/analyze/analysis.h"

namespace fasa {

struct AnalyzeReport {
  std::string model;
  AnalysisOptions options;
  Analysis analysis;
  Config config;
  double seconds = 0;
};

nlohmann::json to_json(const AnalyzeReport& report);
std::string to_table(const AnalyzeReport& report);

}  // namespace fasa
