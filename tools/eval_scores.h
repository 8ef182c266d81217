// Scores of kept predictions, from the metrics' own program in its Python environment.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fasa {

class MetricsProgram {
 public:
  // `python`: of an environment with the metrics' packages; "" = build/metrics-venv of the source
  // tree that this program was built from, if it still lies in its build folder, else metrics-venv
  // of its installation. Throws UsageError saying how to make one where it, or a package, is
  // missing: before hours of answers, not after.
  explicit MetricsProgram(std::string python);

  // Scores the predictions of a file of results and keeps the scores beside it. Throws InputError
  // with what the program said.
  nlohmann::json score(const std::string& results) const;

 private:
  std::string command(const std::string& argument) const;
  std::string folder_;  // that holds fasa_metrics
  std::string python_;
};

// Puts the scores that are kept beside a file of results into its records, as "score".
void add_scores(const std::string& results, std::vector<nlohmann::json>& records);

}  // namespace fasa
