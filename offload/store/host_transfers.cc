#include "offload/store/host_transfers.h"

#include <algorithm>
#include <string>

namespace fasa {
namespace {

// A prompt's tokens that are read from the write-back buffer, where their page's older rows lack.
bool begins_in_page(const SequenceDesc& sequence) {
  return sequence.mode == StepMode::kPrefill && sequence.access == RowAccess::kOverLink &&
         sequence.start % kPageTokens != 0;
}

}  // namespace

HostTransfers::HostTransfers(Device& device, const TransferSizes& sizes)
    : device_(device),
      appended_(device.create_event()),
      resolved_(device.create_event()),
      predicted_(device.create_event()),
      staged_(device.create_event()),
      claims_(static_cast<size_t>(sizes.layers), false) {
  const auto add_streams = [&](int count, StreamPriority priority, const char* name,
                               std::vector<Stream>& streams) {
    for (int i = 0; i < count; ++i)
      streams.push_back(device.create_stream(priority, name + std::to_string(i)));
  };
  const auto add_events = [&](int count, std::vector<Event>& events) {
    for (int i = 0; i < count; ++i) events.push_back(device.create_event());
  };
  add_streams(sizes.prefetch_streams, StreamPriority::kNormal, "prefetch ", prefetch_streams_);
  add_streams(sizes.copy_streams, StreamPriority::kHigh, "copy ", copy_streams_);
  write_back_ = device.create_stream(StreamPriority::kNormal, "write-back");
  add_events(std::max(sizes.copy_streams, sizes.head_groups), fetched_);
  add_events(sizes.layers, written_);
  if (sizes.prefetch_streams > 0) {
    add_events(sizes.layers, claimed_);
    add_events(sizes.layers, arrived_);
  }
  for (int half = 0; half < 2; ++half) {
    write_back_free_[half] = device.create_event();
    pages_free_[half] = device.create_event();
  }
}

StreamView HostTransfers::copy_stream(int layer, int index) const {
  return copy_streams_[static_cast<size_t>(layer + index) % copy_streams_.size()].view();
}

// The write-back buffer and the protected rows' slots are overwritten: their previous rows must be
// on the host, where copy streams read them.
void HostTransfers::before_append(const RowCall& call) {
  if (call.layer_rows.data != nullptr) return;  // rows of other tokens stay where they are
  const int index = call.params.layer;
  await_written_back(index, call.compute, call.tag());
  for (const Stream& copy : copy_streams_) await_written_back(index, copy.view(), call.tag());
  const bool prefill =
      std::any_of(call.sequences.begin(), call.sequences.end(),
                  [](const SequenceDesc& desc) { return desc.mode == StepMode::kPrefill; });
  if (prefill) fill_write_back_buffer(call);
}

// A chunk that begins inside a page also attends to that page's older rows.
void HostTransfers::fill_write_back_buffer(const RowCall& call) {
  const CacheLayout& layout = call.params.layout;
  const StreamView copy = copy_stream(call.layer, 0);
  device_.wait(call.compute, write_back_free_[call.params.layer % 2].view(), call.tag());
  // Else copies of the layer's pages may go ahead of compute.
  if (call.by_page || !std::any_of(call.sequences.begin(), call.sequences.end(), begins_in_page)) {
    return;
  }
  device_.record(resolved_.view(), call.compute);  // it no longer reads the write-back buffer
  device_.wait(copy, resolved_.view(), call.tag());
  for (size_t i = 0; i < call.sequences.size(); ++i) {
    const SequenceDesc& sequence = call.sequences[i];
    if (!begins_in_page(sequence)) continue;
    const auto page = static_cast<size_t>(sequence.start / kPageTokens);
    device_.copy(sequence.write_back_buffer + call.params.write_back_offset,
                 call.rows[i].blocks[page] + call.row_offset(0, 0),
                 static_cast<size_t>(layout.row_layer_bytes()), CopyKind::kHostToDevice, copy,
                 call.tag());
    call.count(static_cast<uint64_t>(layout.row_layer_bytes()));
  }
  device_.record(staged_.view(), copy);
  device_.wait(call.compute, staged_.view(), call.tag());
}

void HostTransfers::after_append(const RowCall& call) {
  const StreamView stream = write_back_.view();
  const OperationTag tag = tag_of(call.layer, Cause::kWriteBack);
  device_.record(appended_.view(), call.compute);
  device_.wait(stream, appended_.view(), tag);
  device_.enqueue(WriteBackParams{.step = call.params}, stream, tag);
  device_.record(written_[static_cast<size_t>(call.params.layer)].view(), stream);
  device_.record(write_back_free_[call.params.layer % 2].view(), stream);
}

void HostTransfers::fetch_group(const RowCall& call, const FetchParams& params, int group,
                                bool last) {
  const OperationTag tag = tag_of(call.layer, Cause::kMiss);
  const StreamView copy = copy_stream(call.layer, group);
  device_.record(resolved_.view(), call.compute);  // the group's sets are chosen
  device_.wait(copy, resolved_.view(), tag);
  await_claims(call.layer, copy);
  // Fetches include the newest row.
  if (call.by_page) await_written_back(call.params.layer, copy, tag);
  if (group == 0) call.mark(StepProbe::kFetchBegin, copy);
  device_.enqueue(params, copy, tag);
  if (last) call.mark(StepProbe::kFetchEnd, copy);
  device_.record(fetched_[static_cast<size_t>(group)].view(), copy);
}

void HostTransfers::await_group(const RowCall& call, int group) {
  call.mark(StepProbe::bubble(group), call.compute);
  device_.wait(call.compute, fetched_[static_cast<size_t>(group)].view(), call.tag());
  if (group == 0) await_prefetched(call.layer, call.compute);
  call.mark(StepProbe::arrived(group), call.compute);
}

// Deals the heads of all sequences over the copy streams in turn: every stream has a part of each
// sequence, so that a sequence with many misses does not occupy one stream alone.
void HostTransfers::fetch_wave(const RowCall& call, const GatherParams& params) {
  const int heads = params.count * params.layout.kv_heads;
  const int streams = std::min(heads, static_cast<int>(copy_streams_.size()));
  device_.record(resolved_.view(), call.compute);
  const OperationTag tag = tag_of(call.layer, Cause::kMiss);
  for (int i = 0; i < streams; ++i) {
    const StreamView copy = copy_stream(call.layer, i);
    device_.wait(copy, resolved_.view(), tag);
    // Fetches include the newest row.
    if (call.by_page) await_written_back(call.params.layer, copy, tag);
    if (i == 0) call.mark(StepProbe::kFetchBegin, copy);
    GatherParams part = params;
    part.first = i;
    part.stride = streams;
    device_.enqueue(part, copy, tag);
    if (i == 0) call.mark(StepProbe::kFetchEnd, copy);
    device_.record(fetched_[static_cast<size_t>(i)].view(), copy);
  }
}

void HostTransfers::await_wave(const RowCall& call) {
  call.mark(StepProbe::kBubble, call.compute);
  for (size_t i = 0; i < copy_streams_.size(); ++i) {
    device_.wait(call.compute, fetched_[i].view(), call.tag());
  }
  await_prefetched(call.layer, call.compute);
  call.mark(StepProbe::kArrived, call.compute);
}

void HostTransfers::prefetch(const RowCall& call, const ClaimSlotsParams& params,
                             EventView sets_read) {
  const auto layer = static_cast<size_t>(call.layer);
  const StreamView stream = prefetch_streams_[layer % prefetch_streams_.size()].view();
  const OperationTag tag = tag_of(call.layer, Cause::kPrefetch);
  device_.record(predicted_.view(), call.compute);
  device_.wait(stream, predicted_.view(), tag);
  device_.enqueue(params, stream, tag);
  device_.record(claimed_[layer].view(), stream);
  if (sets_read.native != nullptr) device_.record(sets_read, stream);
  // The last step's rows are on the host.
  await_written_back(call.params.layer, stream, tag);
  call.mark(StepProbe::kPredictionBegin, stream);
  device_.enqueue(GatherParams{.layout = params.step.layout,
                               .count = params.step.count,
                               .wave = params.max_rows,
                               .fetches = params.fetches,
                               .fetch_counts = params.fetch_counts},
                  stream, tag);
  device_.record(arrived_[layer].view(), stream);
  call.mark(StepProbe::kPredictionEnd, stream);
  claims_[layer] = true;
}

void HostTransfers::await_claims(int layer, StreamView stream) {
  const auto at = static_cast<size_t>(layer);
  if (claims_[at]) device_.wait(stream, claimed_[at].view(), tag_of(layer, Cause::kCompute));
}

void HostTransfers::await_prefetched(int layer, StreamView compute) {
  const auto at = static_cast<size_t>(layer);
  if (claims_[at]) device_.wait(compute, arrived_[at].view(), tag_of(layer, Cause::kCompute));
}

void HostTransfers::await_newest(const RowCall& call) {
  await_written_back(call.params.layer, copy_stream(call.layer, 0), call.tag());
}

void HostTransfers::stream(const RowCall& call, const PageRun& run) {
  const OperationTag tag =
      tag_of(call.layer, call.cause == Cause::kCompute ? Cause::kMiss : call.cause);
  const RowView& rows = call.rows[run.sequence];
  const int64_t bytes = call.params.layout.row_layer_bytes();
  pages_.clear();
  for (int page = 0; page < run.pages; ++page) {
    if (rows.has_copy(run.first + page)) continue;  // read in place
    pages_.push_back({run.destination + page * bytes,
                      rows.blocks[static_cast<size_t>(run.first + page)] + call.row_offset(0, 0),
                      static_cast<size_t>(bytes)});
  }
  const StreamView copy = copy_stream(call.layer, 0);
  device_.wait(copy, pages_free_[run.half].view(), tag);
  device_.copy_all(pages_, CopyKind::kHostToDevice, copy, tag);
  call.count(pages_.size() * static_cast<uint64_t>(bytes));
  device_.record(staged_.view(), copy);
  device_.wait(call.compute, staged_.view(), tag);
}

void HostTransfers::streamed(const RowCall& call, int half) {
  device_.record(pages_free_[half].view(), call.compute);
}

// Rows in device copies are copied from there: copies may leave between two pieces.
void HostTransfers::load_layer(const RowCall& call) {
  const SequenceDesc& sequence = call.sequences.front();
  const RowView& rows = call.rows.front();
  const auto bytes = static_cast<size_t>(call.params.layout.row_layer_bytes());
  // Layers that share the rows may see more of them.
  const int window = call.params.layout.sharers > 0 ? 0 : call.window;
  pages_.clear();
  copied_pages_.clear();
  for (int page = first_visible(sequence.start, window) / kPageTokens;
       page < pages_of(sequence.start); ++page) {
    const auto at = static_cast<size_t>(page);
    const bool copied = rows.has_copy(page);
    const std::byte* const block = copied ? rows.copies[at] : rows.blocks[at];
    if (block == nullptr) continue;  // freed
    (copied ? copied_pages_ : pages_)
        .push_back({call.layer_rows.page(page), block + call.row_offset(0, 0), bytes});
  }
  const StreamView copy = copy_stream(call.layer, 0);
  device_.record(resolved_.view(), call.compute);  // it no longer reads the layer before
  device_.wait(copy, resolved_.view(), call.tag());
  // Nor does the write-back, which has also written the rows that are read here.
  for (const Event& free : write_back_free_) device_.wait(copy, free.view(), call.tag());
  device_.copy_all(pages_, CopyKind::kHostToDevice, copy, call.tag());
  device_.copy_all(copied_pages_, CopyKind::kDeviceToDevice, copy, call.tag());
  device_.record(staged_.view(), copy);
  device_.wait(call.compute, staged_.view(), call.tag());
  call.count(pages_.size() * static_cast<uint64_t>(bytes));
}

void HostTransfers::await_written_back(int index, StreamView stream, OperationTag tag) {
  device_.wait(stream, written_[static_cast<size_t>(index)].view(), tag);
}

void HostTransfers::record_written_back(EventView event) {
  device_.record(event, write_back_.view());
}

std::vector<StreamView> HostTransfers::streams() const {
  std::vector<StreamView> streams;
  for (const Stream& stream : copy_streams_) streams.push_back(stream.view());
  streams.push_back(write_back_.view());
  for (const Stream& stream : prefetch_streams_) streams.push_back(stream.view());
  return streams;
}

void HostTransfers::synchronize() {
  for (const StreamView stream : streams()) device_.synchronize(stream);
}

}  // namespace fasa
