// Scores stored predictions with the separate program fasa_metrics in its Python environment.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fasa {

class MetricsProgram {
 public:
  // `python`: an environment with the metrics' packages; "" = build/metrics-venv of the source tree
  // if this program is in its build folder, else metrics-venv of the installation. Throws
  // UsageError with instructions if the environment or a package is missing, so that this is known
  // before the model runs.
  explicit MetricsProgram(std::string python);

  // Scores the predictions in a file of results and stores the scores beside it. Throws InputError
  // with the program's message.
  nlohmann::json score(const std::string& results) const;

 private:
  std::string command(const std::string& argument) const;
  std::string folder_;  // contains fasa_metrics
  std::string python_;
};

// Adds the scores stored beside a file of results to its records, as "score".
void add_scores(const std::string& results, std::vector<nlohmann::json>& records);

}  // namespace fasa
