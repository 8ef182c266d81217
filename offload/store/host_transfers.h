// Moves rows over the link, in both directions:
//
//   compute     append -> select of a group of heads -> select of the next -> FAC of each group
//   copy            \          \-> fetch of its misses ---/\-> fetch --------/
//   prefetch         \      claims of hot slots for a later layer -> their rows
//   write-back        \-> new rows to the host
//
// The copy streams have high priority, so that misses overtake prefetches. No ordering is needed
// between the prefetches of two steps: before the next step touches a layer's hot rows, compute has
// waited for that layer's prefetches, and prefetch streams wait for compute.
#pragma once

#include <vector>

#include "offload/store/row_transfers.h"

namespace fasa {

class HostTransfers final : public RowTransfers {
 public:
  HostTransfers(Device& device, const TransferSizes& sizes);

  void begin_step() override { claims_.assign(claims_.size(), false); }
  void before_append(const RowCall& call) override;
  void after_append(const RowCall& call) override;
  void fetch_group(const RowCall& call, const FetchParams& params, int group, bool last) override;
  void await_group(const RowCall& call, int group) override;
  void fetch_wave(const RowCall& call, const GatherParams& params) override;
  void await_wave(const RowCall& call) override;
  void prefetch(const RowCall& call, const ClaimSlotsParams& params, EventView sets_read) override;
  void await_claims(const RowCall& call) override { await_claims(call.layer, call.compute); }
  void await_newest(const RowCall& call) override;
  void stream(const RowCall& call, const PageRun& run) override;
  void streamed(const RowCall& call, int half) override;
  void load_layer(const RowCall& call) override;
  void await_written_back(int index, StreamView stream, OperationTag tag) override;
  void record_written_back(EventView event) override;
  std::vector<StreamView> streams() const override;
  void synchronize() override;

 private:
  StreamView copy_stream(int layer, int index) const;
  void fill_write_back_buffer(const RowCall& call);
  void await_claims(int layer, StreamView stream);
  void await_prefetched(int layer, StreamView compute);

  Device& device_;
  std::vector<Stream> copy_streams_;
  std::vector<Stream> prefetch_streams_;
  Stream write_back_;
  Event appended_;
  Event resolved_;
  Event predicted_;
  Event staged_;
  std::vector<Event> fetched_;    // per copy stream or head group
  std::vector<Event> written_;    // per layer of the layout: its rows are on the host
  std::vector<Event> claimed_;    // per layer
  std::vector<Event> arrived_;    // per layer: its prefetched rows
  std::vector<bool> claims_;      // per layer: this step has claims for it
  Event write_back_free_[2];      // by layer parity: the write-back buffer has been written back
  Event pages_free_[2];           // by half: compute has read the pages
  std::vector<CopyRange> pages_;  // a wave of pages; a member to keep its capacity
  std::vector<CopyRange> copied_pages_;
};

}  // namespace fasa
