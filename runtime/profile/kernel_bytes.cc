#include "runtime/profile/kernel_bytes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

namespace fasa {
namespace {

bool moves_rows(std::string_view kernel) {
  return kernel == "gather" || kernel == "fetch" || kernel == "write_back";
}

bool carries(const TimelineEntry& entry) {
  const Cause cause = entry.tag.cause;
  return entry.kind == TimelineEntry::Kind::kWork && entry.tag.layer >= 0 &&
         entry.work.h2d_bytes + entry.work.d2h_bytes == 0 &&
         (cause == Cause::kMiss || cause == Cause::kPrefetch || cause == Cause::kWriteBack) &&
         moves_rows(entry.name);
}

uint64_t bytes_of(const FetchBytes& bytes, Cause cause) {
  if (cause == Cause::kMiss) return bytes.miss;
  return cause == Cause::kPrefetch ? bytes.prefetch : bytes.write_back;
}

}  // namespace

void add_kernel_bytes(const FetchMetrics& fetch, std::vector<TimelineEntry>& entries) {
  struct Group {
    std::vector<TimelineEntry*> entries;
    double seconds = 0;
  };
  std::map<std::pair<int, Cause>, Group> groups;
  for (TimelineEntry& entry : entries) {
    if (!carries(entry)) continue;
    Group& group = groups[{entry.tag.layer, entry.tag.cause}];
    group.entries.push_back(&entry);
    group.seconds += entry.span.seconds();
  }
  for (auto& [key, group] : groups) {
    const auto layer = static_cast<size_t>(key.first);
    if (layer >= fetch.layer_bytes.size()) continue;
    uint64_t left = bytes_of(fetch.layer_bytes[layer], key.second);
    const auto all = static_cast<double>(left);
    for (TimelineEntry* const entry : group.entries) {
      const bool last = entry == group.entries.back();
      const double share = group.seconds > 0 ? entry->span.seconds() / group.seconds : 0;
      const uint64_t bytes =
          last ? left : std::min(left, static_cast<uint64_t>(std::llround(share * all)));
      left -= bytes;
      if (bytes == 0) continue;
      const bool to_host = key.second == Cause::kWriteBack;
      (to_host ? entry->work.d2h_bytes : entry->work.h2d_bytes) = bytes;
      entry->link[to_host ? 1 : 0] = entry->span;
    }
  }
}

}  // namespace fasa
