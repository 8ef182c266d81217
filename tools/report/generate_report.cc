#include "tools/report/generate_report.h"

#include <fmt/format.h>

#include "runtime/base/units.h"
#include "runtime/base/utf8.h"
#include "runtime/config/config_options.h"
#include "runtime/io/machine.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

double per_step(uint64_t amount, uint64_t steps) {
  return steps == 0 ? 0 : static_cast<double>(amount) / static_cast<double>(steps);
}

Json prefill_json(const GenerateReport& report) {
  Json json = {{"tokens", report.result.prompt_tokens}, {"seconds", report.result.prefill_seconds}};
  if (report.virtual_clock) json["wall_seconds"] = report.result.prefill_wall_seconds;
  return json;
}

Json decode_json(const GenerateReport& report) {
  Json json = {
      {"tokens", report.result.decoded_tokens},      {"steps", report.result.decode_steps},
      {"drafted_tokens", report.result.drafts.made}, {"right_drafts", report.result.drafts.right},
      {"seconds", report.result.decode_seconds},     {"tpot_ms", report.tpot_ms()}};
  for (const double seconds : report.result.step_seconds) json["step_ms"].push_back(seconds * 1e3);
  if (report.virtual_clock) json["wall_seconds"] = report.result.decode_wall_seconds;
  if (const AuditCounts& audit = report.result.audit; audit.tokens > 0) {
    json["audit"] = {{"tokens", audit.tokens},
                     {"same_best_tokens", audit.same_best},
                     {"mean_kl", audit.mean_kl()},
                     {"max_kl", audit.kl_max}};
  }
  return json;
}

Json fetch_json(const GenerateReport& report) {
  const FetchMetrics& fetch = report.fetch;
  return {{"rows_per_step", report.rows_per_step()},
          {"bytes_per_step", report.bytes_per_step()},
          {"hit_rate", fetch.hit_rate()},
          {"prefetch",
           {{"accuracy", fetch.prefetch_accuracy()}, {"coverage", fetch.prefetch_coverage()}}},
          {"bytes",
           {{"miss", fetch.bytes.miss},
            {"prefetch", fetch.bytes.prefetch},
            {"write_back", fetch.bytes.write_back},
            {"prompt", fetch.bytes.prompt}}},
          {"nan_scores", fetch.rows.nan_scores}};
}

Json memory_json(const GenerateReport& report) {
  const KvMemory& memory = report.result.memory;
  return {{"weight_bytes", report.weight_bytes},
          {"device_kv_bytes", memory.device_total()},
          {"device_slice_bytes", memory.device_slices},
          {"device_row_bytes", memory.device_rows},
          {"device_hot_row_bytes", memory.device_hot_rows},
          {"device_extra_bytes", memory.device_extra},
          {"device_scratch_bytes", memory.device_scratch},
          {"device_state_bytes", memory.device_states},
          {"device_peak_bytes", report.device_memory.peak_bytes},
          {"host_kv_bytes", memory.host_rows},
          {"host_state_bytes", memory.host_states},
          {"host_rows_share_bytes",
           report.shared_row_bytes > 0 ? Json(report.shared_row_bytes) : Json(nullptr)},
          {"full_kv_bytes", report.full_kv_bytes},
          {"cache_tokens", report.result.cache_tokens}};
}

Json sampling_json(const Sampling& sampling) {
  return {{"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"repetition_penalty", sampling.repetition_penalty},
          {"presence_penalty", sampling.presence_penalty},
          {"frequency_penalty", sampling.frequency_penalty},
          {"seed", sampling.seed}};
}

std::string beside_full(uint64_t needed, uint64_t full) {
  const std::string of_full = fmt::format("full KV in 2 bytes, {}", format_bytes(full));
  if (needed <= full)
    return fmt::format("{:.2f}x smaller than {}", per_step(full, needed), of_full);
  return fmt::format("{:.2f}x as much as {}: short contexts gain nothing", per_step(needed, full),
                     of_full);
}

std::string_view end_name(AnswerEnd end) {
  switch (end) {
    case AnswerEnd::kEndOfSequence:
      return "end_of_sequence";
    case AnswerEnd::kStopString:
      return "stop_string";
    case AnswerEnd::kMaxTokens:
      return "max_tokens";
    case AnswerEnd::kCancelled:
      return "cancelled";
    default:
      return "error";
  }
}

Json logprobs_json(const std::vector<TokenLogprobs>& logprobs) {
  Json json = Json::array();
  for (const TokenLogprobs& token : logprobs) {
    Json top = Json::array();
    for (const auto& [id, logprob] : token.top) top.push_back({{"id", id}, {"logprob", logprob}});
    json.push_back({{"id", token.id}, {"logprob", token.logprob}, {"top", std::move(top)}});
  }
  return json;
}

}  // namespace

double GenerateReport::tpot_ms() const {
  return result.decoded_tokens == 0
             ? 0
             : result.decode_seconds * 1e3 / static_cast<double>(result.decoded_tokens);
}

double GenerateReport::rows_per_step() const {
  return per_step(fetch.rows.misses, fetch.decode_steps);
}

double GenerateReport::bytes_per_step() const {
  return per_step(fetch.fetched_bytes, fetch.decode_steps);
}

Json to_json(const GenerateReport& report) {
  const std::string& text = report.result.text;
  Json json = {{"tokens", report.result.tokens},
               {"text", text},
               {"text_lossy", text.find(kReplacement) != std::string::npos},
               {"stopped_on_eos", report.result.stopped_on_eos},
               {"end", end_name(report.result.end)},
               {"sampling", sampling_json(report.sampling)},
               {"model", valid_utf8(report.model)},
               {"device", report.device},
               {"dtype", std::string(dtype_name(report.dtype))},
               {"row_dtype", std::string(row_dtype_name(report.row_dtype))},
               {"clock", report.virtual_clock ? "virtual" : "wall"},
               {"prefill", prefill_json(report)},
               {"decode", decode_json(report)},
               {"memory", memory_json(report)},
               {"fetch", fetch_json(report)},
               {"map", report.map.empty() ? Json(nullptr) : Json(valid_utf8(report.map))},
               {"map_seconds", report.map_seconds},
               {"control_group", group_limits()},
               {"config", config_to_json(report.config)}};
  if (!report.result.logprobs.empty()) json["logprobs"] = logprobs_json(report.result.logprobs);
  if (report.result.error) json["error"] = *report.result.error;
  return json;
}

std::string to_table(const GenerateReport& report) {
  const GenerateResult& result = report.result;
  const KvMemory& memory = result.memory;
  std::string table;
  const auto row = [&](std::string_view name, const std::string& value) {
    table += fmt::format("{:<26}{}\n", name, value);
  };
  const std::string clock = report.virtual_clock ? " (virtual clock)" : "";
  const auto wall = [&](double seconds) {
    return report.virtual_clock ? fmt::format(", {:.2f} s of wall time", seconds) : std::string();
  };
  row("device", fmt::format("{}, weights {}, rows {}", report.device, dtype_name(report.dtype),
                            row_dtype_name(report.row_dtype)));
  if (const std::string limits = group_limits(); !limits.empty()) {
    row("control group's limits", limits);
  }
  row("weight bytes", format_bytes(report.weight_bytes));
  row("prompt", fmt::format("{} tokens in {:.3f} s{}{}", result.prompt_tokens,
                            result.prefill_seconds, clock, wall(result.prefill_wall_seconds)));
  row("decode", fmt::format("{} steps in {:.3f} s{}{}", result.decode_steps, result.decode_seconds,
                            clock, wall(result.decode_wall_seconds)));
  if (report.config.drafts.kind != DraftKind::kNone) {
    row("drafts",
        fmt::format("{} of {} right, {:.2f} tokens a step", result.drafts.right, result.drafts.made,
                    per_step(static_cast<uint64_t>(result.decoded_tokens),
                             static_cast<uint64_t>(result.decode_steps))));
  }
  if (const AuditCounts& audit = result.audit; audit.tokens > 0) {
    row("beside full attention",
        fmt::format("KL {:.2g}, at most {:.2g}; same best token {} of {}", audit.mean_kl(),
                    audit.kl_max, audit.same_best, audit.tokens));
  }
  row("time per output token", fmt::format("{:.3f} ms{}", report.tpot_ms(), clock));
  const uint64_t needed = memory.device_needed();
  row("KV bytes on the device", fmt::format("{} needed, {}", format_bytes(needed),
                                            beside_full(needed, report.full_kv_bytes)));
  row("  extra hot rows",
      fmt::format("{} lent while memory is free", format_bytes(memory.device_extra)));
  row("  slices, rows",
      fmt::format("{}, {}", format_bytes(memory.device_slices), format_bytes(memory.device_rows)));
  row("  hot rows, scratch", fmt::format("{}, {}", format_bytes(memory.device_hot_rows),
                                         format_bytes(memory.device_scratch)));
  if (memory.device_states > 0) {
    row("states",
        fmt::format("{} of layers with linear attention; {} of snapshots on the host",
                    format_bytes(memory.device_states), format_bytes(memory.host_states)));
  }
  row("KV bytes on the host",
      format_bytes(memory.host_rows) + (report.shared_row_bytes == 0
                                            ? ""
                                            : fmt::format(", sharing {} of physical memory",
                                                          format_bytes(report.shared_row_bytes))));
  row("device memory, peak", format_bytes(report.device_memory.peak_bytes));
  row("fetched per step",
      fmt::format("{:.1f} rows, {}", report.rows_per_step(),
                  format_bytes(static_cast<uint64_t>(report.bytes_per_step()))));
  row("hit rate", fmt::format("{:.1f} %", report.fetch.hit_rate() * 100));
  if (report.fetch.rows.prefetched > 0) {
    row("fetched ahead per step",
        fmt::format("{:.1f} rows, {:.1f} % of them used",
                    per_step(report.fetch.rows.prefetched, report.fetch.decode_steps),
                    report.fetch.prefetch_accuracy() * 100));
  }
  return table;
}

}  // namespace fasa
