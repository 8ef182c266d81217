#include "tools/report/profile_timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>

namespace fasa {
namespace {

using Json = nlohmann::json;

double in_us(double seconds) { return std::round(seconds * 1e9) / 1e3; }

std::string kind_of(const TimelineEntry& entry,
                    const std::map<const TimelineEntry*, std::string>& parts) {
  if (entry.kind == TimelineEntry::Kind::kWait) {
    return wait_reason(entry) == WaitReason::kRows ? "wait_rows" : "wait";
  }
  const auto part = parts.find(&entry);
  return part != parts.end() ? part->second : cause_name(entry.tag.cause);
}

std::string title_of(const TimelineEntry& entry) {
  if (entry.kind == TimelineEntry::Kind::kWork) return entry.name;
  const char* const awaited = entry.awaited.name;
  return std::string("waits for ") + (awaited == nullptr ? "an event" : awaited);
}

}  // namespace

Json timeline_json(const ProfiledDecode& decode) {
  const std::vector<TimelineEntry>& entries = decode.last_step();
  Json json = {{"streams", Json::array()}, {"entries", Json::array()}};
  const auto compute = compute_stream(entries);
  if (!compute) return json;
  std::map<const TimelineEntry*, std::string> parts;
  double begin = std::numeric_limits<double>::max();
  for (const ComputePart& part : compute_parts(entries, *compute)) {
    parts[part.entry] = part.name;
    begin = std::min(begin, part.entry->span.start);
  }
  std::map<TimelineStream, size_t> lanes = {{*compute, 0}};
  const auto names = decode.streams();
  const auto name_of = [&](TimelineStream stream) {
    const auto found = names.find(stream);
    return found == names.end() ? std::string("stream") : found->second;
  };
  json["streams"].push_back(name_of(*compute));
  for (const TimelineEntry& entry : entries) {
    // Other streams wait most of the time; a counter is no work.
    const bool wait = entry.kind == TimelineEntry::Kind::kWait;
    if ((wait && entry.stream != *compute) || entry.span.end < begin) continue;
    if (!wait && std::string_view(entry.name) == kHitRateCounter) continue;
    const auto [lane, added] = lanes.try_emplace(entry.stream, lanes.size());
    if (added) json["streams"].push_back(name_of(entry.stream));
    const double start = std::max(begin, entry.span.start);
    json["entries"].push_back({lane->second, in_us(start - begin), in_us(entry.span.end - start),
                               kind_of(entry, parts), title_of(entry), entry.tag.layer,
                               entry.work.h2d_bytes + entry.work.d2h_bytes});
  }
  return json;
}

}  // namespace fasa
