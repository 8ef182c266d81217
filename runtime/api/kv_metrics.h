// Memory of a KV cache, and what its steps fetched; the same for all APIs.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/params.h"
#include "offload/device.h"

namespace fasa {

// Bytes of the whole KV cache.
struct KvMemory {
  uint64_t device_slices = 0;    // sealed pages and tails
  uint64_t device_rows = 0;      // row pages on the device, copies included
  uint64_t device_hot_rows = 0;  // hot rows, their tables, protected rows
  uint64_t device_extra = 0;     // extra hot rows, long waves of prefills: while memory is free
  // Sets, addresses, partials, fetch buffers, page tables, descriptors, recorded graphs.
  uint64_t device_scratch = 0;
  uint64_t device_states = 0;  // of layers with linear attention
  uint64_t host_rows = 0;
  uint64_t host_states = 0;  // snapshots of states
  uint64_t host_tables = 0;  // host copies of the page tables
  // Row pages in that memory.
  uint64_t& rows_in(MemorySpace space) {
    return space == MemorySpace::kHost ? host_rows : device_rows;
  }
  uint64_t device_needed() const {
    return device_slices + device_rows + device_hot_rows + device_scratch + device_states;
  }
  uint64_t device_total() const { return device_needed() + device_extra; }
  uint64_t host_needed() const { return host_rows + host_states; }  // tables are small
  uint64_t host_total() const { return host_needed() + host_tables; }
};

// Decode steps recorded as device graphs.
struct GraphMetrics {
  uint64_t recorded = 0;      // graphs, in total
  uint64_t launched = 0;      // steps
  uint64_t device_bytes = 0;  // held by graphs now
};

// Bytes of rows moved over the link, by cause.
struct FetchBytes {
  uint64_t miss = 0;        // fetched on demand
  uint64_t prefetch = 0;    // fetched ahead of use
  uint64_t write_back = 0;  // new rows to the host
  uint64_t prompt = 0;      // earlier rows back to the device, for the tokens of a prompt
};

// Since the last reset_metrics(), over all KV heads and sequences.
struct FetchMetrics {
  uint64_t decode_steps = 0;
  StepCounters rows;                 // over all layers
  std::vector<StepCounters> layers;  // per layer
  FetchBytes bytes;
  std::vector<FetchBytes> layer_bytes;
  uint64_t fetched_bytes = 0;  // misses only; equals bytes.miss
  double hit_rate() const { return rows.hit_rate(); }
  double prefetch_accuracy() const { return rows.accuracy(); }
  double prefetch_coverage() const { return rows.coverage(); }
};

}  // namespace fasa
