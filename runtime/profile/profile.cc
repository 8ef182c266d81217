#include "runtime/profile/profile.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string_view>

namespace fasa {
namespace {

constexpr size_t kToDevice = 0;  // index of TimelineEntry::link

bool is_row_cause(Cause cause) { return cause == Cause::kMiss || cause == Cause::kPrefetch; }

bool carries_rows(const TimelineEntry& entry) {
  return entry.kind == TimelineEntry::Kind::kWork && entry.work.h2d_bytes > 0 &&
         is_row_cause(entry.tag.cause);
}

// The name of a part of compute in the reports.
std::string part_name(const TimelineEntry& entry) {
  const std::string_view name = entry.name;
  if (entry.tag.cause == Cause::kPrefetch) return "prediction";
  if (name == "select") return "scoring";
  if (name == "attend") return "attention";
  if (name.starts_with("project")) return "weights";
  return std::string(name);
}

Behind behind_of(std::string_view part) {
  if (part == "scoring") return Behind::kScoring;
  if (part == "codes") return Behind::kCodes;
  return part == "attention" ? Behind::kAttention : Behind::kOther;
}

double hidden_share(double waited, double transferred) {
  return transferred <= 0 ? 1 : std::clamp(1 - waited / transferred, 0.0, 1.0);
}

}  // namespace

const char* wait_reason_name(WaitReason reason) {
  static constexpr std::array<const char*, kWaitReasons> kNames = {"rows", "predictions",
                                                                   "write_back", "tables", "other"};
  return kNames[static_cast<size_t>(reason)];
}

const char* behind_name(Behind behind) {
  static constexpr std::array<const char*, kBehinds> kNames = {
      "other layers", "scoring", "codes", "attention", "other work", "nothing"};
  return kNames[static_cast<size_t>(behind)];
}

WaitReason wait_reason(const TimelineEntry& wait) {
  const TimelineEntry::Source& awaited = wait.awaited;
  if (awaited.name == nullptr) return WaitReason::kOther;
  const std::string_view name = awaited.name;
  if (name == "claim_slots") return WaitReason::kPredictions;
  if (is_row_cause(awaited.tag.cause)) return WaitReason::kRows;
  if (awaited.tag.cause == Cause::kWriteBack) return WaitReason::kWriteBack;
  if (awaited.tag.cause == Cause::kControl) return WaitReason::kTables;
  return WaitReason::kOther;
}

double LayerProfile::waiting() const { return std::accumulate(waits.begin(), waits.end(), 0.0); }

double LayerProfile::scoring_share() const {
  return miss.bytes == 0 ? 0 : miss_while_scoring / static_cast<double>(miss.bytes);
}

double LayerProfile::used_share() const {
  if (rows.prefetched == 0) return 0;
  return static_cast<double>(std::min(rows.prefetched_used, rows.prefetched)) /
         static_cast<double>(rows.prefetched);
}

uint64_t LayerProfile::wasted_bytes() const {
  const double wasted = (1 - used_share()) * static_cast<double>(prefetch.bytes);
  return static_cast<uint64_t>(std::llround(wasted));
}

LayerProfile& LayerProfile::operator+=(const LayerProfile& other) {
  compute += other.compute;
  for (size_t i = 0; i < kWaitReasons; ++i) waits[i] += other.waits[i];
  miss += other.miss;
  miss_while_scoring += other.miss_while_scoring;
  prefetch += other.prefetch;
  write_back_bytes += other.write_back_bytes;
  rows += other.rows;
  overlap += other.overlap;
  return *this;
}

std::optional<TimelineStream> compute_stream(const std::vector<TimelineEntry>& entries) {
  for (const TimelineEntry& entry : entries) {
    if (entry.kind == TimelineEntry::Kind::kWork && std::string_view(entry.name) == "attend") {
      return entry.stream;
    }
  }
  return std::nullopt;
}

LayerProfile& Profile::part_of(OperationTag tag) {
  const auto layer = static_cast<size_t>(tag.layer);
  return tag.layer >= 0 && layer < layers_.size() ? layers_[layer] : outside_;
}

void Profile::add(const ProfiledStep& step) {
  const double waited = total().wait(WaitReason::kRows);
  const LayerProfile before = total();
  if (const auto compute = compute_stream(step.entries)) {
    for (const TimelineEntry& entry : step.entries) add_entry(entry, *compute);
    add_parts(step.entries, *compute);
  }
  add_rounds(step.entries);
  add_link(step.entries);
  for (size_t i = 0; i < layers_.size() && i < step.fetch.layers.size(); ++i) {
    layers_[i].rows += step.fetch.layers[i];
  }
  knows_overlap_ |= !step.overlap.empty();
  for (size_t i = 0; i < layers_.size() && i < step.overlap.size(); ++i) {
    layers_[i].overlap += step.overlap[i];
  }
  const LayerProfile now = total();
  points_.push_back({.seconds = step.seconds,
                     .hit_rate = step.fetch.hit_rate(),
                     .wait_rows = now.wait(WaitReason::kRows) - waited,
                     .miss_bytes = now.miss.bytes - before.miss.bytes,
                     .prefetch_bytes = now.prefetch.bytes - before.prefetch.bytes});
}

void Profile::add_entry(const TimelineEntry& entry, TimelineStream compute) {
  LayerProfile& part = part_of(entry.tag);
  if (entry.kind == TimelineEntry::Kind::kWait) {
    if (entry.stream != compute) return;
    part.waits[static_cast<size_t>(wait_reason(entry))] += entry.span.seconds();
    return;
  }
  if (entry.stream == compute) part.compute += entry.span.seconds();
  if (entry.tag.cause == Cause::kMiss) part.miss.bytes += entry.work.h2d_bytes;
  if (entry.tag.cause == Cause::kPrefetch) part.prefetch.bytes += entry.work.h2d_bytes;
  if (entry.tag.cause == Cause::kWriteBack) part.write_back_bytes += entry.work.d2h_bytes;
}

// A layer's attention to codes in a launch of its own is its first one, where it has more launches
// than the layer has head groups.
std::vector<ComputePart> compute_parts(const std::vector<TimelineEntry>& entries,
                                       TimelineStream compute) {
  struct Calls {
    uint64_t selects = 0, attends = 0;
    const TimelineEntry* first_attend = nullptr;
  };
  std::vector<ComputePart> parts;
  for (const TimelineEntry& entry : entries) {
    if (entry.kind != TimelineEntry::Kind::kWork || entry.stream != compute) continue;
    parts.push_back({&entry, part_name(entry)});
  }
  std::sort(parts.begin(), parts.end(), [](const ComputePart& a, const ComputePart& b) {
    return a.entry->span.start < b.entry->span.start;
  });
  std::map<int, Calls> calls;
  for (const ComputePart& part : parts) {
    Calls& layer = calls[part.entry->tag.layer];
    layer.selects += part.name == "scoring" ? 1 : 0;
    if (part.name != "attention") continue;
    ++layer.attends;
    if (layer.first_attend == nullptr) layer.first_attend = part.entry;
  }
  for (ComputePart& part : parts) {
    const Calls& layer = calls[part.entry->tag.layer];
    const bool codes = part.entry == layer.first_attend && layer.selects > 0;
    if (codes && layer.attends > layer.selects) part.name = "codes";
  }
  return parts;
}

void Profile::add_parts(const std::vector<TimelineEntry>& entries, TimelineStream compute) {
  const std::vector<ComputePart> parts = compute_parts(entries, compute);
  std::set<int> selecting;
  for (const auto& [entry, name] : parts) {
    PartProfile& part = parts_[name];
    part.seconds += entry->span.seconds();
    ++part.calls;
    part.bytes += entry->work.device_bytes;
    if (name != "scoring") continue;
    ++selects_;
    selecting.insert(entry->tag.layer);
  }
  selecting_layers_ += selecting.size();
  add_behind(entries, parts);
}

// `parts` are in order, one after the other.
void Profile::add_behind(const std::vector<TimelineEntry>& entries,
                         const std::vector<ComputePart>& parts) {
  for (const TimelineEntry& entry : entries) {
    if (!carries_rows(entry)) continue;
    const TimeSpan& link = entry.link[kToDevice];
    if (link.seconds() <= 0) continue;
    double left = link.seconds();
    double scoring = 0;
    auto part =
        std::upper_bound(parts.begin(), parts.end(), link.start,
                         [](double at, const ComputePart& of) { return at < of.entry->span.end; });
    for (; part != parts.end() && part->entry->span.start < link.end; ++part) {
      const TimeSpan& span = part->entry->span;
      const int layer = part->entry->tag.layer;
      const double beside = std::min(link.end, span.end) - std::max(link.start, span.start);
      const Behind behind = layer == entry.tag.layer ? behind_of(part->name)
                            : layer < 0              ? Behind::kOther
                                                     : Behind::kOtherLayers;
      behind_[static_cast<size_t>(behind)] += beside;
      scoring += behind == Behind::kScoring ? beside : 0;
      left -= beside;
    }
    behind_[static_cast<size_t>(Behind::kNothing)] += std::max(0.0, left);
    if (entry.tag.cause != Cause::kMiss) continue;
    part_of(entry.tag).miss_while_scoring +=
        scoring / link.seconds() * static_cast<double>(entry.work.h2d_bytes);
  }
}

// Streams transfer rows in parallel; on each stream, transfers run one after the other. Counts the
// longest sequence of transfers.
void Profile::add_rounds(const std::vector<TimelineEntry>& entries) {
  std::map<std::pair<int, Cause>, std::map<TimelineStream, uint64_t>> rounds;
  for (const TimelineEntry& entry : entries) {
    if (carries_rows(entry)) ++rounds[{entry.tag.layer, entry.tag.cause}][entry.stream];
  }
  for (const auto& [what, streams] : rounds) {
    uint64_t most = 0;
    for (const auto& [stream, count] : streams) most = std::max(most, count);
    LayerProfile& part = part_of({static_cast<int16_t>(what.first), what.second});
    (what.second == Cause::kMiss ? part.miss : part.prefetch).rounds += most;
  }
}

void Profile::add_link(const std::vector<TimelineEntry>& entries) {
  std::vector<TimeSpan> spans;
  for (const TimelineEntry& entry : entries) {
    if (!carries_rows(entry)) continue;
    const TimeSpan& link = entry.link[kToDevice];
    spans.push_back(link);
    link_bytes_ += entry.work.h2d_bytes;
    // The operation ends when its last byte arrives.
    const double latency = std::max(0.0, entry.span.end - link.end);
    latency_ = std::min(latency_.value_or(latency), latency);
  }
  std::sort(spans.begin(), spans.end(),
            [](const TimeSpan& a, const TimeSpan& b) { return a.start < b.start; });
  double end = spans.empty() ? 0 : spans.front().start;
  for (const TimeSpan& span : spans) {
    link_busy_ += std::max(0.0, span.end - std::max(end, span.start));
    end = std::max(end, span.end);
  }
}

LayerProfile Profile::total() const {
  LayerProfile sum = outside_;
  for (const LayerProfile& layer : layers_) sum += layer;
  return sum;
}

double Profile::seconds() const {
  double sum = 0;
  for (const StepPoint& point : points_) sum += point.seconds;
  return sum;
}

double Profile::idle() const {
  const LayerProfile all = total();
  return std::max(0.0, seconds() - all.compute - all.waiting());
}

double Profile::head_groups() const {
  return selecting_layers_ == 0
             ? 0
             : static_cast<double>(selects_) / static_cast<double>(selecting_layers_);
}

LinkSpeed Profile::link() const {
  LinkSpeed speed;
  if (link_bytes_ > 0) speed.seconds_per_byte = link_busy_ / static_cast<double>(link_bytes_);
  speed.latency = latency_.value_or(0);
  return speed;
}

double Profile::transfer(const LayerProfile& part) const {
  const LinkSpeed speed = link();
  const auto seconds = [&](const TransferLoad& load) {
    return static_cast<double>(load.bytes) * speed.seconds_per_byte +
           static_cast<double>(load.rounds) * speed.latency;
  };
  return seconds(part.miss) + part.used_share() * seconds(part.prefetch);
}

double Profile::hidden(const LayerProfile& part) const {
  return hidden_share(part.wait(WaitReason::kRows), transfer(part));
}

double Profile::total_transfer() const {
  double sum = transfer(outside_);
  for (const LayerProfile& layer : layers_) sum += transfer(layer);
  return sum;
}

double Profile::total_hidden() const {
  return hidden_share(total().wait(WaitReason::kRows), total_transfer());
}

uint64_t Profile::total_wasted_bytes() const {
  uint64_t sum = outside_.wasted_bytes();
  for (const LayerProfile& layer : layers_) sum += layer.wasted_bytes();
  return sum;
}

}  // namespace fasa
