// The results of `fasa analyze`: how a model's heads use their frequency chunks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/capture/calibration_data.h"
#include "runtime/lab/analyze/agreement.h"
#include "runtime/llm/compute/model.h"

namespace fasa {

struct AnalysisOptions {
  int64_t tokens = 4096;  // of each text at most
  int window = 256;       // K of agreement
  int queries = 60;       // per text
  uint64_t seed = 1;
  uint64_t capture_bytes = uint64_t{1}
                           << 30;  // of keys and queries at a time; at least one layer's
  // Throws UsageError naming the flag, what was given and what is allowed.
  void validate(const Geometry& geometry, int64_t max_positions) const;
};

struct AnalysisInput {
  std::string name;
  std::vector<int32_t> ids;
};

struct AnalysisText {
  std::string name;
  CalibrationData data;  // queries in the last third
};

struct Analysis {
  std::vector<AnalysisText> texts;
  std::vector<AgreementTable> agreement;          // per text
  std::vector<std::vector<double>> text_overlap;  // [texts][texts], a quarter of the FCs
  // Overlap of maps from the first 2, 3, ... 10 tenths of the queries with the map from all of
  // them.
  std::vector<double> size_overlap;

  // Mean CA over all texts.
  double mean_agreement(int layer, int head, int chunk) const;
  double share_of_chunks(const std::function<bool(double)>& test) const;
};

using AnalysisProgress = std::function<void(int64_t done, int64_t total)>;

// Captures layers in groups, each with a pass over the texts, so that captured data stays within
// capture_bytes. Throws UsageError, InputError (a text shorter than two windows), BudgetError.
Analysis analyze(Model& model, const std::vector<AnalysisInput>& inputs,
                 const AnalysisOptions& options, const AnalysisProgress& progress = {});

}  // namespace fasa
