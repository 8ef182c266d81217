#include <algorithm>

#include "tests/support/reference/kernels.h"
#include "tests/support/reference/rows.h"

namespace fasa::reference {
namespace {

void attend_token(const PrefillParams& params, int sequence, int index, int query) {
  const CacheLayout& layout = params.step.layout;
  const SequenceDesc& desc = params.step.sequences[sequence];
  const int token = desc.first_token + index;
  const int position = desc.start + index;
  const int64_t out = int64_t{token} * layout.query_heads() + query;

  RunningSoftmax softmax(layout.row, params.q, token, query, params.scale, params.step.score_cap);
  float* state =
      params.state != nullptr ? params.state + out * (layout.row.value_dim + 2) : nullptr;
  if (!params.first_wave) softmax.load(state);
  int begin = params.begin_page * kPageTokens;
  if (params.window > 0) begin = std::max(begin, position - params.window + 1);
  for (int key = begin; key < std::min(params.end_page * kPageTokens, position + 1); ++key) {
    const double slope = params.step.slopes != nullptr ? params.step.slopes[query] : 0;
    softmax.add(find_row(params.step, sequence, query / layout.gqa_group, key, params.pages, true),
                slope * (key - position));
  }
  if (!params.last_wave) return softmax.store(state);
  softmax.write(params.out, token, query, params.lse != nullptr ? params.lse + out : nullptr);
}

}  // namespace

void prefill(const PrefillParams& params) {
  for (int sequence = 0; sequence < params.step.count; ++sequence) {
    const SequenceDesc& desc = params.step.sequences[sequence];
    if (desc.mode != StepMode::kPrefill) continue;
    for (int index = 0; index < desc.tokens; ++index) {
      for (int query = 0; query < params.step.layout.query_heads(); ++query) {
        attend_token(params, sequence, index, query);
      }
    }
  }
}

}  // namespace fasa::reference
