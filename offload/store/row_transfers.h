// Moves rows of a layer group during a step, where the tier needs it: work is enqueued only,
// ordered by events. Has the streams and events of the moves, so a runtime makes it anew after a
// device failure, while stores live on. This class is the transfers of local rows: there are none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/params.h"
#include "offload/device.h"
#include "offload/step_probe.h"
#include "offload/store/layer_rows.h"
#include "offload/store/pending_pages.h"
#include "offload/store/row_tier.h"

namespace fasa {

// One layer of a step.
struct RowCall {
  StepParams params;
  std::span<const SequenceDesc> sequences = {};  // on the host
  std::span<const RowView> rows = {};            // of each sequence
  int layer = 0;                                 // the model's
  int window = 0;                                // tokens that the layer sees; 0: all
  StreamView compute = {};
  Cause cause = Cause::kCompute;  // of the work that waits
  // The caller put the pages together: appended tokens are read from their pages.
  bool by_page = false;
  uint64_t* prompt_bytes = nullptr;  // counts what comes back to the device for prompts; or null
  LayerRows layer_rows = {};
  StepProbe* probe = nullptr;

  OperationTag tag() const { return tag_of(layer, cause); }
  // A layer's rows in a row block.
  int64_t row_offset(int kv_head, int slot) const {
    return params.layout.row_offset(params.layer, kv_head, slot);
  }
  void count(uint64_t bytes) const {
    if (prompt_bytes != nullptr && cause == Cause::kPrefill) *prompt_bytes += bytes;
  }
  void mark(StepProbe::Point point, StreamView stream) const {
    if (probe != nullptr && probe->layer() == layer) probe->mark(point, stream);
  }
};

// Token sets that the host can read, [count, kv_heads, capacity].
struct TokenSets {
  const int32_t* positions = nullptr;
  const int32_t* sizes = nullptr;
  int32_t capacity = 0;
};

// Consecutive pages of one sequence, copied side by side into half `half` of a double buffer.
struct PageRun {
  size_t sequence = 0;
  int first = 0;
  int pages = 0;
  std::byte* destination = nullptr;
  int half = 0;
};

class RowTransfers {
 public:
  RowTransfers() = default;
  virtual ~RowTransfers() = default;
  RowTransfers(const RowTransfers&) = delete;
  RowTransfers& operator=(const RowTransfers&) = delete;

  virtual void begin_step() {}

  // Around a layer's append, which writes new rows where they are read next.
  virtual void before_append(const RowCall&) {}
  virtual void after_append(const RowCall&) {}

  // Rows that are not in memory are loaded: those of chosen sets; all that the layer sees. Throw
  // the errors of PendingPages.
  virtual void load_sets(const RowCall&, const TokenSets&) {}
  virtual void load_visible(const RowCall&) {}

  // Misses of a group of heads whose sets are chosen, then compute waits for them. `last`: of the
  // layer's groups.
  virtual void fetch_group(const RowCall&, const FetchParams&, int /*group*/, bool /*last*/) {}
  virtual void await_group(const RowCall&, int /*group*/) {}
  // The same for a wave of the sets of all heads, which compute has resolved.
  virtual void fetch_wave(const RowCall&, const GatherParams&) {}
  virtual void await_wave(const RowCall&) {}

  // Claims hot slots for rows that a layer is expected to need and fetches the rows, once compute
  // has chosen them. `sets_read`, unless it is null, is recorded when the claims have read the
  // sets.
  virtual void prefetch(const RowCall&, const ClaimSlotsParams&, EventView /*sets_read*/) {}
  // Compute waits until the layer's claims in this step, if there are any, are in its tables.
  virtual void await_claims(const RowCall&) {}

  // Pages that are attended to whole. Call await_newest() before those that may have rows of this
  // step. Compute waits for the copies; call streamed() when it no longer reads them.
  virtual void await_newest(const RowCall&) {}
  virtual void stream(const RowCall&, const PageRun&) {}
  virtual void streamed(const RowCall&, int /*half*/) {}

  // Before the append of a layer's first piece: RowCall::layer_rows gets the layer's earlier rows
  // that are visible, once the layer before no longer uses it.
  virtual void load_layer(const RowCall&) {}

  // Work enqueued on `stream` after this call sees the rows of the layout's layer `index` in their
  // final location.
  virtual void await_written_back(int /*index*/, StreamView, OperationTag) {}
  // Call after the append of all layers: records their write-back in `event`.
  virtual void record_written_back(EventView /*event*/) {}
  virtual std::vector<StreamView> streams() const { return {}; }
  // Waits for all transfers. Throws DeviceError if work failed.
  virtual void synchronize() {}
};

struct TransferSizes {
  int layers = 0;            // the model's
  int copy_streams = 1;      // for misses and streamed pages
  int head_groups = 1;       // maximum number in a layer
  int prefetch_streams = 0;  // 0: nothing is prefetched
};

}  // namespace fasa
