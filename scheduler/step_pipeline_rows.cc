// Steps over sequences whose rows are not all in memory. Only on the cpu device, where enqueued
// work is already complete and the host can read the sets.
#include <algorithm>

#include "scheduler/step_pipeline_call.h"

namespace fasa {

void StepPipeline::fetch_selected(const Call& call) {
  const CacheLayout& layout = settings_.layout;
  const DecodeScratch& scratch = call.scratch.decode();
  for (int i = 0; i < call.step.count(); ++i) {
    const RowView& rows = call.step.rows[static_cast<size_t>(i)];
    const SequenceDesc& sequence = call.step.on_host[static_cast<size_t>(i)];
    if (rows.pending == nullptr || sequence.mode != StepMode::kDecode) continue;
    wanted_.clear();
    for (int head = 0; head < layout.kv_heads; ++head) {
      const int64_t index = int64_t{i} * layout.kv_heads + head;
      const int32_t* set = scratch.sets + index * scratch.selected_capacity;
      for (const int32_t position :
           std::span(set, static_cast<size_t>(scratch.selected_sizes[index]))) {
        const int64_t page = position / kPageTokens;
        if (page >= rows.pending_pages) continue;
        wanted_.push_back(
            {page, call.row_offset(settings_, head, position % kPageTokens), layout.row.bytes()});
      }
    }
    rows.pending->load(wanted_, rows.blocks);
  }
}

void StepPipeline::fetch_visible(const Call& call) {
  const CacheLayout& layout = settings_.layout;
  for (size_t i = 0; i < call.step.on_host.size(); ++i) {
    const RowView& rows = call.step.rows[i];
    const SequenceDesc& sequence = call.step.on_host[i];
    if (rows.pending == nullptr || sequence.mode != StepMode::kDecode) continue;
    const int32_t first = first_visible(sequence.start, call.settings(settings_).window);
    wanted_.clear();
    for (int64_t page = first / kPageTokens; page < rows.pending_pages; ++page) {
      wanted_.push_back({page, call.row_offset(settings_, 0, 0), layout.row_layer_bytes()});
    }
    rows.pending->load(wanted_, rows.blocks);
  }
}

}  // namespace fasa
