// Measures the attention that a selection captures while the runtime decodes a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/lab/analyze/analysis_text.h"
#include "runtime/lab/analyze/set_observer.h"
#include "runtime/llm/model.h"

namespace fasa {

struct CapturedAttention {
  double attention = 0;  // sum over queries of the softmax over the tokens attended to
  double distant = 0;    // the same for distant tokens only: outside the first 4 and the newest 16
  double all_distant = 0;
  int64_t queries = 0;  // of all query heads and layers, or of one
  double attention_share() const {
    return queries == 0 ? 0 : attention / static_cast<double>(queries);
  }
  double distant_share() const { return all_distant > 0 ? distant / all_distant : 1; }
  void add(const CapturedAttention& other) {
    attention += other.attention, distant += other.distant, all_distant += other.all_distant,
        queries += other.queries;
  }
};

// Results of queries on the text, and of queries at the repeats of planted strings.
struct SelectionAttention {
  std::string method;
  int64_t budget = 0;  // fac_tokens
  CapturedAttention text, probes;
  std::vector<std::vector<CapturedAttention>> heads;  // both together, [layers][query_heads]
};

// Prefills the text except its last `text_steps` tokens before the repeats; decodes those and the
// repeats with the config's selection. The model must run on `observer`; this replaces its
// callback. Needs host memory for the keys of all layers. Throws UsageError, BudgetError.
SelectionAttention measure_selection(Model& model, SetObserver& observer, const Config& config,
                                     const std::vector<int16_t>& slice_dims,
                                     const AnalysisText& text, int text_steps);

}  // namespace fasa
