// A begun step, as the executor and the prefetcher see it. All members outlive the step.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/params.h"
#include "offload/device.h"
#include "offload/step_probe.h"
#include "offload/store/row_transfers.h"
#include "scheduler/plan/step_plan.h"
#include "scheduler/step_settings.h"

namespace fasa {

class SelectionHistory;  // scheduler/selection/selection_history.h

struct StepContext {
  const SequenceDesc* on_device = nullptr;
  std::span<const SequenceDesc> on_host;         // the same, for the host to read
  const SequenceDesc* in_window_rows = nullptr;  // device: the same, with window rows' pages
  int64_t second_write_back_buffer =
      0;                      // bytes from the even layers' write-back buffer to the odd ones'
  std::vector<RowView> rows;  // per sequence
  std::vector<SelectionHistory*> histories;  // per sequence, null without memory
  const int16_t* slice_dims = nullptr;       // device, [layers][kv_heads][slice.dims]
  const float* slopes = nullptr;             // device, [query_heads], see StepParams; or null
  StepCounters* counters = nullptr;          // device, [layers]
  uint64_t* prompt_bytes = nullptr;          // host, [layers], see RowCall
  StepNumber step_number;                    // for kernels; rising from step to step
  EventView tables_ready;                    // the tables are on the device
  // Sequences are pages that the caller put together (paged API): no protected rows, and appended
  // tokens are not read from the write-back buffer.
  bool by_page = false;
  bool piece = false;  // of a chunk: one layer of one prompt
  int round = 0;       // of the step's attention; rows are prefetched for the first one
  int together = 1;    // see StepParams
  RowAccess decoded = RowAccess::kLocal;  // see StepInput
  LayerRows layer_rows = {};              // of that layer
  StepProbe* probe = nullptr;             // null: this step is not measured
  StepPlan plan;                          // of attention

  // True if rows that the step needs may not be in memory.
  bool pending() const {
    return std::any_of(rows.begin(), rows.end(),
                       [](const RowView& view) { return view.pending != nullptr; });
  }
  int copied_pages(size_t sequence) const {
    int copied = 0;
    if (rows[sequence].copies.empty()) return 0;
    for (int page = 0; page < pages_of(on_host[sequence].end()); ++page) {
      copied += rows[sequence].has_copy(page) ? 1 : 0;
    }
    return copied;
  }
  bool any(StepMode mode) const {
    return std::any_of(on_host.begin(), on_host.end(),
                       [mode](const SequenceDesc& s) { return s.mode == mode; });
  }
  int count() const { return static_cast<int>(on_host.size()); }
};

// Offset from SequenceDesc::write_back_buffer to the buffer of layer `index` of its layout.
inline int64_t write_back_offset(const StepContext& step, int index) {
  return index % 2 == 0 ? 0 : step.second_write_back_buffer;
}

inline StepParams layer_params(const StepSettings& settings, const StepContext& step, int layer) {
  const CacheLayout& layout = settings.layout_of(layer);
  const LayerSettings& own = settings.layer(layer);
  return {.layout = layout,
          .sequences = own.in_window_rows ? step.in_window_rows : step.on_device,
          .count = step.count(),
          .together = step.together,
          .layer = own.index,
          .sharer = own.sharer,
          .write_back_offset = write_back_offset(step, own.index),
          .slice_dims = step.slice_dims + layout.head_index(own.index, 0) * layout.slice.dims,
          .slopes = step.slopes,
          .score_cap = settings.score_cap};
}

// `cause`: of the work that waits for rows.
inline RowCall row_call(const StepSettings& settings, const StepContext& step, int layer,
                        StreamView compute, Cause cause) {
  return {.params = layer_params(settings, step, layer),
          .sequences = step.on_host,
          .rows = step.rows,
          .layer = layer,
          .window = settings.layer(layer).window,
          .compute = compute,
          .cause = cause,
          .by_page = step.by_page,
          .prompt_bytes = step.prompt_bytes != nullptr ? step.prompt_bytes + layer : nullptr,
          .layer_rows = settings.layer(layer).in_window_rows ? LayerRows{} : step.layer_rows,
          .probe = step.probe};
}

}  // namespace fasa
