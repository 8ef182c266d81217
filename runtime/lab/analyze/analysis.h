// The results of `fasa analyze`: how a model's heads use their frequency chunks, and how much of
// its attention selections keep.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/lab/analyze/agreement.h"
#include "runtime/lab/analyze/compound.h"
#include "runtime/lab/analyze/selection_attention.h"
#include "runtime/lab/analyze/slice_attention.h"

namespace fasa {

struct AnalysisOptions {
  int64_t tokens = 4096;   // of each text at most, planted strings and repeats included
  int window = 256;        // K of agreement and fifths
  int slice_window = 128;  // tokens selected in the comparison of slices
  int queries = 60;        // per text; half as many probes
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

struct Analysis {
  std::vector<AnalysisText> texts;
  std::vector<AgreementTable> agreement;  // per text
  CompoundTable compound;                 // all texts together
  FifthsTable fifths;
  std::vector<std::vector<double>> text_overlap;  // [texts][texts], a quarter of the FCs
  // Overlap of maps from the first 2, 3, ... 10 tenths of the queries with the map from all of
  // them.
  std::vector<double> size_overlap;
  std::vector<SliceChoiceAttention> slices;  // kinds: queries on text, at repeats
  std::vector<SelectionAttention> selections;

  // Mean CA over all texts.
  double mean_agreement(int layer, int head, int chunk) const;
  double share_of_chunks(const std::function<bool(double)>& test) const;
};

using AnalysisProgress = std::function<void(const std::string& what, int64_t done, int64_t total)>;

// Everything but `selections`. Captures layers in groups, each with a pass over the texts, so that
// captured data stays within capture_bytes. Throws UsageError, InputError, BudgetError.
Analysis analyze(Model& model, const std::vector<AnalysisInput>& inputs,
                 const AnalysisOptions& options, const AnalysisProgress& progress = {});

}  // namespace fasa
