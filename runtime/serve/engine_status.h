// Statistics of an engine loop: counters since its start, and its sessions now.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "offload/device.h"
#include "runtime/api/kv_metrics.h"
#include "runtime/serve/generation_request.h"
#include "runtime/serve/session_suspension.h"

namespace fasa::serve {

// A histogram by upper bounds, as in Prometheus.
template <size_t kBounds>
struct Histogram {
  std::array<double, kBounds> bounds{};
  std::array<uint64_t, kBounds> counts{};  // of values <= the bound and > the one before
  uint64_t total = 0;
  double sum = 0;

  void add(double value) {
    for (size_t i = 0; i < kBounds; ++i) {
      if (value <= bounds[i]) {
        ++counts[i];
        break;
      }
    }
    ++total;
    sum += value;
  }
};

using SecondsHistogram = Histogram<13>;
inline SecondsHistogram seconds_histogram() {
  return {.bounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 120}};
}
// For work that is short beside a step.
inline SecondsHistogram short_seconds_histogram() {
  return {.bounds = {0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                     0.01, 0.1, 1, 10}};
}

// A histogram for each range of the rows (tokens) of a decode step, which read the weights once.
struct HistogramByRows {
  static constexpr std::array<const char*, 5> kNames = {"1", "2-3", "4-7", "8-15", "16+"};

  std::array<SecondsHistogram, kNames.size()> ranges;

  HistogramByRows() { ranges.fill(seconds_histogram()); }
  // `rows`: at least 1.
  SecondsHistogram& of(size_t rows) {
    return ranges[std::min(kNames.size(), static_cast<size_t>(std::bit_width(rows))) - 1];
  }
};

struct SessionStatus {
  uint64_t id = 0;
  std::string salt;
  std::string title;
  int64_t tokens = 0;
  int64_t suspended_tokens = 0;  // tokens whose keys and values are on disk
  bool in_memory = false;        // its keys and values are in memory
  // Memory shared by forks is counted for each of them.
  uint64_t device_bytes = 0, host_bytes = 0, disk_bytes = 0;
};

struct EngineStatus {
  int running = 0;
  int waiting = 0;
  // The cached sessions; callers share one list until it changes.
  std::shared_ptr<const std::vector<SessionStatus>> sessions =
      std::make_shared<std::vector<SessionStatus>>();
  uint64_t requests = 0;
  uint64_t finished_stop = 0, finished_length = 0, finished_cancelled = 0, finished_error = 0;
  uint64_t preemptions = 0;
  uint64_t evictions = 0;
  uint64_t prompt_tokens = 0;      // in all requests' prompts
  uint64_t cached_tokens = 0;      // the part of them found in the cache
  Recomputed recomputed_tokens{};  // of them
  uint64_t generated_tokens = 0;
  uint64_t drafted_tokens = 0, right_drafts = 0;
  AuditCounts audit;
  Histogram<8> audit_kl = {.bounds = {1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.1, 1}};
  SecondsHistogram queue_seconds = seconds_histogram();
  SecondsHistogram first_token_seconds = seconds_histogram();
  SecondsHistogram inter_token_seconds = seconds_histogram();
  HistogramByRows decode_step_seconds;
  // From a decode step's end to the next one's begin while requests decode, less the work on
  // prompts.
  SecondsHistogram between_steps_seconds = short_seconds_histogram();
  SecondsHistogram prefill_step_seconds = seconds_histogram();
  KvMemory memory;
  FetchMetrics fetches;
  SuspensionStatus suspension;
  MemoryUse device_memory, host_memory;
};

}  // namespace fasa::serve
