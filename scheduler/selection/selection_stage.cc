#include "scheduler/selection/selection_stage.h"

#include "runtime/base/parallel.h"
#include "scheduler/selection/selection_history.h"
#include "scheduler/selection/token_selection.h"

namespace fasa {
namespace {

HeadStep head_step(const StepSettings& settings, const SelectParams& params, int sequence,
                   int head) {
  const CacheLayout& layout = settings.layout;
  const SequenceDesc& tokens = params.step.sequences[sequence];
  HeadStep step{.params = params,
                .sequence = sequence,
                .kv_head = head,
                .query_heads = layout.gqa_group,
                .scale = settings.scale,
                .plan = plan_selection(params, tokens),
                .queries = {}};
  for (int h = 0; h < step.query_heads; ++h) {
    const int64_t at = params.q.offset(tokens.first_token, head * layout.gqa_group + h);
    for (int d = 0; d < layout.row.key_dim; ++d) {
      step.queries.push_back(load_element(params.q.dtype, params.q.data, at + d));
    }
  }
  return step;
}

}  // namespace

void SelectionStage::record(StepMode mode) const {
  for (int s = 0; s < params.step.count; ++s) {
    const SequenceDesc& sequence = params.step.sequences[s];
    SelectionHistory* history = step.histories[static_cast<size_t>(s)];
    if (history != nullptr && sequence.mode == mode) {
      history->record(params.step.attending_layer(), params.q, sequence);
    }
  }
}

void SelectionStage::choose(int sequence, int head) const {
  const int64_t index = int64_t{sequence} * settings.layout.kv_heads + head;
  params.selected_sizes[index] = 0;
  if (params.step.sequences[sequence].mode != StepMode::kDecode) return;
  const HeadStep one = head_step(settings, params, sequence, head);
  SelectionHistory* history = step.histories[static_cast<size_t>(sequence)];
  const std::vector<int32_t>* kept =
      history == nullptr ? nullptr : &history->advance(params.step, one.tokens(), head);
  params.selected_sizes[index] =
      settings.selection->choose(one, kept, params.sets + index * params.selected_capacity);
}

KernelWork SelectionStage::select() const {
  record(StepMode::kDecode);
  const int heads = settings.layout.kv_heads;
  parallel_for(0, params.step.count * heads, [&](int i) { choose(i / heads, i % heads); });
  return {};
}

KernelWork SelectionStage::observe_prefill() const {
  record(StepMode::kPrefill);
  const int heads = settings.layout.kv_heads;
  parallel_for(0, params.step.count * heads, [&](int i) {
    const SequenceDesc& sequence = params.step.sequences[i / heads];
    SelectionHistory* history = step.histories[static_cast<size_t>(i / heads)];
    if (history == nullptr || sequence.mode != StepMode::kPrefill) return;
    history->advance(params.step, sequence, i % heads);
  });
  return {};
}

}  // namespace fasa
