#include "bindings/http/metrics_text.h"

#include <fmt/format.h>

namespace fasa::serve {
namespace {

class Metrics {
 public:
  void head(const char* name, const char* type, const char* help) {
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <typename Value>
  void sample(const std::string& name, const std::string& labels, Value value) {
    text_ += labels.empty() ? fmt::format("{} {}\n", name, value)
                            : fmt::format("{}{{{}}} {}\n", name, labels, value);
  }
  template <typename Value>
  void counter(const char* name, const char* help, Value value) {
    head(name, "counter", help);
    sample(name, "", value);
  }
  template <typename Value>
  void gauge(const char* name, const char* help, Value value) {
    head(name, "gauge", help);
    sample(name, "", value);
  }
  template <size_t kBounds>
  void histogram(const char* name, const char* help, const Histogram<kBounds>& values) {
    head(name, "histogram", help);
    buckets(name, "", values);
  }
  void histogram(const char* name, const char* help, const HistogramByRows& values) {
    head(name, "histogram", help);
    for (size_t i = 0; i < values.ranges.size(); ++i) {
      buckets(name, fmt::format("rows=\"{}\"", HistogramByRows::kNames[i]), values.ranges[i]);
    }
  }
  std::string take() { return std::move(text_); }

 private:
  template <size_t kBounds>
  void buckets(const std::string& name, const std::string& labels,
               const Histogram<kBounds>& values) {
    const std::string before = labels.empty() ? "" : labels + ",";
    uint64_t sum = 0;
    for (size_t i = 0; i < values.bounds.size(); ++i) {
      sum += values.counts[i];
      sample(name + "_bucket", fmt::format("{}le=\"{}\"", before, values.bounds[i]), sum);
    }
    sample(name + "_bucket", before + "le=\"+Inf\"", values.total);
    sample(name + "_sum", labels, values.sum);
    sample(name + "_count", labels, values.total);
  }

  std::string text_;
};

std::string escaped(const std::string& label) {
  std::string text;
  for (const char c : label) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? ' ' : c;
  }
  return text;
}

void add_requests(Metrics& metrics, const EngineStatus& status) {
  metrics.gauge("fasa_requests_running", "Requests that are running.", status.running);
  metrics.gauge("fasa_requests_waiting", "Requests in the queue.", status.waiting);
  metrics.head("fasa_requests_finished_total", "counter", "Finished choices, by reason.");
  metrics.sample("fasa_requests_finished_total", "reason=\"stop\"", status.finished_stop);
  metrics.sample("fasa_requests_finished_total", "reason=\"length\"", status.finished_length);
  metrics.sample("fasa_requests_finished_total", "reason=\"cancelled\"", status.finished_cancelled);
  metrics.sample("fasa_requests_finished_total", "reason=\"error\"", status.finished_error);
  metrics.counter("fasa_prompt_tokens_total", "Prompt tokens of all requests.",
                  status.prompt_tokens);
  metrics.counter("fasa_cached_tokens_total", "Prompt tokens that were found in the cache.",
                  status.cached_tokens);
  const char* const recomputed = "fasa_prompt_tokens_recomputed_total";
  metrics.head(recomputed, "counter",
               "Prompt tokens that an earlier request had and that were computed again, about.");
  for (size_t i = 0; i < kLossNames.size(); ++i) {
    metrics.sample(recomputed, fmt::format("reason=\"{}\"", kLossNames[i]),
                   status.recomputed_tokens[i]);
  }
  metrics.counter("fasa_generated_tokens_total", "Tokens generated.", status.generated_tokens);
  metrics.counter("fasa_draft_tokens_total", "Drafts of next tokens that decode steps computed.",
                  status.drafted_tokens);
  metrics.counter("fasa_right_drafts_total", "Drafts that were right.", status.right_drafts);
  metrics.counter("fasa_audited_tokens_total", "Tokens compared with full attention.",
                  static_cast<uint64_t>(status.audit.tokens));
  metrics.counter("fasa_audited_same_best_total",
                  "Compared tokens whose most likely token is that of full attention.",
                  static_cast<uint64_t>(status.audit.same_best));
  metrics.histogram("fasa_audit_kl", "KL of compared tokens from full attention, in nats.",
                    status.audit_kl);
  metrics.counter("fasa_preemptions_total", "Requests that lost their memory temporarily.",
                  status.preemptions);
  metrics.counter("fasa_evictions_total", "Cached sessions that were evicted from memory.",
                  status.evictions);
  metrics.histogram("fasa_queue_seconds", "Time from arrival to the first step.",
                    status.queue_seconds);
  metrics.histogram("fasa_time_to_first_token_seconds", "Time from arrival to the first token.",
                    status.first_token_seconds);
  metrics.histogram("fasa_inter_token_seconds", "Time between tokens of one answer.",
                    status.inter_token_seconds);
  metrics.histogram("fasa_decode_step_seconds",
                    "Duration of a decode step, of all decoding requests together, by its rows.",
                    status.decode_step_seconds);
  metrics.histogram("fasa_between_decode_steps_seconds",
                    "Time from a decode step to the next, without the work on prompts.",
                    status.between_steps_seconds);
  metrics.histogram("fasa_prefill_step_seconds",
                    "Duration of the work on prompts between two decode steps.",
                    status.prefill_step_seconds);
}

void add_tiers(Metrics& metrics, const EngineStatus& status) {
  const KvMemory& memory = status.memory;
  metrics.head("fasa_tier_bytes", "gauge", "Bytes of the KV cache, by tier and kind.");
  metrics.sample("fasa_tier_bytes", "tier=\"device\",kind=\"slices\"", memory.device_slices);
  metrics.sample("fasa_tier_bytes", "tier=\"device\",kind=\"rows\"", memory.device_rows);
  metrics.sample("fasa_tier_bytes", "tier=\"device\",kind=\"hot_rows\"", memory.device_hot_rows);
  metrics.sample("fasa_tier_bytes", "tier=\"device\",kind=\"extra_hot_rows\"", memory.device_extra);
  metrics.sample("fasa_tier_bytes", "tier=\"device\",kind=\"scratch\"", memory.device_scratch);
  metrics.sample("fasa_tier_bytes", "tier=\"device\",kind=\"states\"", memory.device_states);
  metrics.sample("fasa_tier_bytes", "tier=\"host\",kind=\"rows\"", memory.host_rows);
  metrics.sample("fasa_tier_bytes", "tier=\"host\",kind=\"states\"", memory.host_states);
  const SuspensionStatus& suspension = status.suspension;
  const bool has_disk = suspension.limit_bytes > 0;
  if (has_disk) {
    metrics.sample("fasa_tier_bytes", "tier=\"disk\",kind=\"sessions\"", suspension.disk_bytes);
  }
  metrics.head("fasa_budget_bytes", "gauge", "Memory limit, by tier.");
  if (has_disk) metrics.sample("fasa_budget_bytes", "tier=\"disk\"", suspension.limit_bytes);
  metrics.sample("fasa_budget_bytes", "tier=\"device\"", status.device_memory.limit_bytes);
  metrics.sample("fasa_budget_bytes", "tier=\"host\"", status.host_memory.limit_bytes);
  metrics.head("fasa_used_bytes", "gauge", "Memory in use, including weights, by tier.");
  if (has_disk) metrics.sample("fasa_used_bytes", "tier=\"disk\"", suspension.disk_bytes);
  metrics.sample("fasa_used_bytes", "tier=\"device\"", status.device_memory.used_bytes);
  metrics.sample("fasa_used_bytes", "tier=\"host\"", status.host_memory.used_bytes);
}

void add_sessions(Metrics& metrics, const EngineStatus& status) {
  int in_memory = 0, suspended = 0;
  for (const SessionStatus& session : *status.sessions) {
    if (session.in_memory) {
      ++in_memory;
    } else if (session.suspended_tokens > 0) {
      ++suspended;
    }
  }
  metrics.head("fasa_sessions", "gauge", "Cached conversations, by state.");
  metrics.sample("fasa_sessions", "state=\"in_memory\"", in_memory);
  metrics.sample("fasa_sessions", "state=\"suspended\"", suspended);
  metrics.sample("fasa_sessions", "state=\"remembered\"",
                 static_cast<int>(status.sessions->size()) - in_memory - suspended);
  const SuspensionStatus& suspension = status.suspension;
  metrics.counter("fasa_sessions_suspended_total", "Suspensions of conversations to disk.",
                  suspension.suspended);
  metrics.counter("fasa_sessions_resumed_total", "Resumptions of conversations from disk.",
                  suspension.resumed);
  metrics.counter("fasa_sessions_resumed_tokens_total", "Tokens of resumed conversations.",
                  suspension.resumed_tokens);
  metrics.counter("fasa_sessions_damaged_total",
                  "Conversations that were recomputed because their files were damaged.",
                  suspension.damaged);
}

void add_fetches(Metrics& metrics, const FetchMetrics& fetches) {
  metrics.head("fasa_transfer_bytes_total", "counter",
               "Bytes of rows transferred over the link, by cause.");
  metrics.sample("fasa_transfer_bytes_total", "cause=\"miss\"", fetches.bytes.miss);
  metrics.sample("fasa_transfer_bytes_total", "cause=\"prefetch\"", fetches.bytes.prefetch);
  metrics.sample("fasa_transfer_bytes_total", "cause=\"write_back\"", fetches.bytes.write_back);
  metrics.sample("fasa_transfer_bytes_total", "cause=\"prompt\"", fetches.bytes.prompt);
  metrics.gauge("fasa_hot_row_hit_ratio", "Share of selected rows that the device already held.",
                fetches.decode_steps == 0 ? 0.0 : fetches.hit_rate());
  const uint64_t fetched = fetches.bytes.miss + fetches.bytes.prefetch;
  metrics.gauge("fasa_prefetched_ratio", "Share of fetched bytes that prefetch fetched.",
                fetched == 0
                    ? 0.0
                    : static_cast<double>(fetches.bytes.prefetch) / static_cast<double>(fetched));
}

void add_http(Metrics& metrics, const HttpCounters& http) {
  metrics.counter("fasa_http_connections_total", "Connections accepted.", http.connections.load());
  metrics.gauge("fasa_http_connections_open", "Open connections.", http.open.load());
  metrics.counter("fasa_http_refused_connections_total",
                  "Connections refused because of the limit.", http.refused_connections.load());
  metrics.counter("fasa_http_bad_requests_total",
                  "Requests that were not valid HTTP or exceeded a limit.",
                  http.bad_requests.load());
  metrics.counter("fasa_http_timeouts_total", "Connections that timed out.", http.timeouts.load());
}

}  // namespace

std::string metrics_text(const EngineStatus& status, const HttpCounters* http,
                         const std::string& model) {
  Metrics metrics;
  metrics.head("fasa_build_info", "gauge", "Version of the server, and its model.");
  metrics.sample("fasa_build_info",
                 fmt::format("version=\"{}\",model=\"{}\"", FASA_VERSION, escaped(model)), 1);
  add_requests(metrics, status);
  add_tiers(metrics, status);
  add_sessions(metrics, status);
  add_fetches(metrics, status.fetches);
  if (http != nullptr) add_http(metrics, *http);
  return metrics.take();
}

}  // namespace fasa::serve
