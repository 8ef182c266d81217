// Attention mass that a selection captures while a text is decoded through the runtime.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/lab/analyze/analysis_text.h"
#include "runtime/lab/analyze/set_watch.h"
#include "runtime/llm/model.h"

namespace fasa {

struct CapturedMass {
  double mass = 0;  // sum over queries of the softmax over the tokens attended to
  double far = 0;   // the same, far tokens alone: outside the first 4 and the newest 16
  double all_far = 0;
  int64_t queries = 0;  // of all query heads and layers, or of one
  double mass_share() const { return queries == 0 ? 0 : mass / static_cast<double>(queries); }
  double far_share() const { return all_far > 0 ? far / all_far : 1; }
  void add(const CapturedMass& other) {
    mass += other.mass, far += other.far, all_far += other.all_far, queries += other.queries;
  }
};

// Of queries on the text, and of those at the repeats of planted strings.
struct SelectionMass {
  std::string method;
  int64_t budget = 0;  // fac_tokens
  CapturedMass text, probes;
  std::vector<std::vector<CapturedMass>> heads;  // both together, [layers][query_heads]
};

// Prefills the text but for its last `text_steps` tokens before the repeats; those and the repeats
// go token by token, with the selection that `config` describes. The model is on `watch`, whose set
// observer is taken. Host memory for the keys of all layers. Throws UsageError, BudgetError.
SelectionMass measure_selection(Model& model, SetWatch& watch, const Config& config,
                                const std::vector<int16_t>& slice_dims, const AnalysisText& text,
                                int text_steps);

}  // namespace fasa
