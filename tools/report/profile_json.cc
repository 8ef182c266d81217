#include <algorithm>

#include "runtime/config/config_options.h"
#include "runtime/profile/verdict.h"
#include "tools/report/profile_report.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

// All values are means over the profiled steps.
class ProfileJson {
 public:
  explicit ProfileJson(const Profile& profile)
      : profile_(profile), steps_(static_cast<double>(std::max<size_t>(1, profile.steps()))) {}

  Json whole() const {
    const LayerProfile total = profile_.total();
    Json json = part(total, profile_.total_transfer(), profile_.total_hidden(),
                     profile_.total_wasted_bytes());
    json["tpot_ms"] = per_step_ms(profile_.seconds());
    json["idle_ms"] = per_step_ms(profile_.idle());
    json["outside_layers"] = of(profile_.outside());
    json["layers"] = Json::array();
    for (size_t i = 0; i < profile_.layers().size(); ++i) {
      Json layer = of(profile_.layers()[i]);
      layer["layer"] = i;
      json["layers"].push_back(std::move(layer));
    }
    json["steps"] = Json::array();
    for (const StepPoint& point : profile_.points()) {
      json["steps"].push_back({{"ms", point.seconds * 1e3},
                               {"hit_rate", point.hit_rate},
                               {"wait_rows_ms", point.wait_rows * 1e3},
                               {"miss_bytes", point.miss_bytes},
                               {"prefetch_bytes", point.prefetch_bytes}});
    }
    const LinkSpeed link = profile_.link();
    const bool moved = link.seconds_per_byte > 0;
    for (const auto& [name, of] : profile_.parts()) {
      json["parts"][name] = {{"ms", per_step_ms(of.seconds)},
                             {"calls", per_step(of.calls)},
                             {"bytes", per_step(of.bytes)}};
    }
    for (size_t i = 0; i < kBehinds; ++i) {
      json["transfers_behind_ms"][behind_name(static_cast<Behind>(i))] =
          per_step_ms(profile_.behind()[i]);
    }
    json["head_groups"] = profile_.head_groups();
    json["link_measured"] = {
        {"bytes_per_second", moved ? Json(1 / link.seconds_per_byte) : Json(nullptr)},
        {"latency_us", moved ? Json(link.latency * 1e6) : Json(nullptr)}};
    return json;
  }

 private:
  double per_step_ms(double seconds) const { return seconds * 1e3 / steps_; }
  double per_step(uint64_t amount) const { return static_cast<double>(amount) / steps_; }

  Json of(const LayerProfile& layer) const {
    return part(layer, profile_.transfer(layer), profile_.hidden(layer), layer.wasted_bytes());
  }
  Json part(const LayerProfile& part, double transfer, double hidden, uint64_t wasted) const {
    Json waits = Json::object();
    for (size_t i = 0; i < kWaitReasons; ++i) {
      waits[wait_reason_name(static_cast<WaitReason>(i))] = per_step_ms(part.waits[i]);
    }
    const bool overlap = profile_.knows_overlap() && part.overlap.entries > 0;
    return {{"tpot_ms", per_step_ms(part.compute + part.waiting())},
            {"compute_ms", per_step_ms(part.compute)},
            {"wait_ms", waits},
            {"transfer_ms", per_step_ms(transfer)},
            {"transfer_hidden", hidden},
            {"hit_rate", part.rows.hit_rate()},
            {"prefetch",
             {{"accuracy", part.rows.prefetched > 0 ? Json(part.rows.accuracy()) : Json(nullptr)},
              {"coverage", part.rows.coverage()},
              {"wasted", per_step(wasted)},
              {"rows", per_step(part.rows.prefetched)},
              {"rows_used", per_step(part.rows.prefetched_used)}}},
            {"rows",
             {{"protected", per_step(part.rows.protected_rows)},
              {"hits", per_step(part.rows.hits)},
              {"misses", per_step(part.rows.misses)}}},
            {"bytes",
             {{"miss", per_step(part.miss.bytes)},
              {"prefetch", per_step(part.prefetch.bytes)},
              {"write_back", per_step(part.write_back_bytes)}}},
            {"miss_bytes_while_scoring", part.miss_while_scoring / steps_},
            {"overlap", overlap ? Json(part.overlap.share()) : Json(nullptr)}};
  }

  const Profile& profile_;
  const double steps_;
};

Json geometry_json(const Geometry& g) {
  return {{"layers", g.layers},   {"query_heads", g.query_heads}, {"kv_heads", g.kv_heads},
          {"key_dim", g.key_dim}, {"value_dim", g.value_dim},     {"rotary_dims", g.rotary_dims}};
}

Json run_json(const ProfileRun& run) {
  Json json = ProfileJson(run.profile()).whole();
  const double bandwidth = run.decode->device().traits().rates.memory_bandwidth;
  for (const auto& [name, part] : run.profile().parts()) {
    const bool known = part.bytes > 0 && part.seconds > 0;
    const double share = static_cast<double>(part.bytes) / bandwidth / part.seconds;
    json["parts"][name]["share_of_bandwidth"] = known ? Json(share) : Json(nullptr);
  }
  const KvMemory memory = run.decode->memory();
  json["memory"] = {
      {"device_kv_bytes", memory.device_total()},  {"device_slice_bytes", memory.device_slices},
      {"device_row_bytes", memory.device_rows},    {"device_hot_row_bytes", memory.device_hot_rows},
      {"device_extra_bytes", memory.device_extra}, {"device_state_bytes", memory.device_states},
      {"host_kv_bytes", memory.host_rows},         {"host_state_bytes", memory.host_states}};
  const DeviceOptions device = run.config.device_options();
  json["verdict"] = verdict(run.profile(), run.costs());
  const HostRowCost cost = host_row_cost(run.profile(), run.costs());
  const double steps = static_cast<double>(std::max<size_t>(1, run.profile().steps()));
  json["host_rows_cost_ms"] = {{"waits", 1e3 * cost.waits / steps},
                               {"launches", 1e3 * cost.groups / steps}};
  json["warmup_steps"] = run.warmup.steps;
  json["warmup_rises"] = run.warmup.rises();
  json["machine"] = {{"text", machine_of(run)},
                     {"gpu", run.config.device.gpu},
                     {"memory_bandwidth", device.memory_bandwidth},
                     {"link_bandwidth", device.link_bandwidth},
                     {"link_latency", device.link_latency}};
  json["notes"] = run.notes;
  json["config"] = config_to_json(run.config);
  return json;
}

}  // namespace

ProfileRatio ratio_of(const Profile& first, const Profile& second) {
  ProfileRatio result;
  if (first.seconds() <= 0 || second.steps() == 0) return result;
  result.ratio = (second.seconds() / static_cast<double>(second.steps())) /
                 (first.seconds() / static_cast<double>(first.steps()));
  result.low = result.high = result.ratio;
  const size_t pairs = std::min(first.steps(), second.steps());
  for (size_t i = 0; i < pairs; ++i) {
    if (first.points()[i].seconds <= 0) continue;
    const double ratio = second.points()[i].seconds / first.points()[i].seconds;
    result.low = std::min(result.low, ratio);
    result.high = std::max(result.high, ratio);
  }
  return result;
}

Json to_json(const ProfileReport& report) {
  const ProfileRun& first = report.runs.front();
  Json json = run_json(first);
  json["subject"] = report.subject;
  json["geometry"] = geometry_json(report.geometry);
  json["tokens"] = report.tokens;
  json["sequences"] = report.sequences;
  json["step_tokens"] = report.step_tokens;
  json["selections"] = report.selections.empty() ? Json(nullptr) : Json(report.selections);
  if (!report.advice.text.empty()) {
    json["advice"] = {{"text", report.advice.text}, {"tried", Json::array()}};
    for (const Advice::Tried& tried : report.advice.tried) {
      json["advice"]["tried"].push_back(
          {{"setting", tried.setting},
           {"tpot_ms", tried.seconds > 0 ? Json(1e3 * tried.seconds) : Json(nullptr)}});
    }
  }
  json["profiled_steps"] = first.profile().steps();
  json["device"] = first.decode->device().name();
  json["clock"] = first.decode->device().virtual_clock() ? "virtual" : "wall";
  json["compute"] = report.compute;
  json["weight_bits"] = report.weight_bits;
  json["selection_trace"] = report.trace.empty() ? Json(nullptr) : Json(report.trace);
  if (report.runs.size() < 2) return json;
  json["compare"] = Json::array();
  for (const ProfileRun& run : report.runs) {
    Json one = run_json(run);
    one["file"] = run.name;
    json["compare"].push_back(std::move(one));
  }
  const ProfileRatio ratio = ratio_of(first.profile(), report.runs[1].profile());
  json["tpot_ratio"] = {{"mean", ratio.ratio}, {"lowest", ratio.low}, {"highest", ratio.high}};
  return json;
}

}  // namespace fasa
