#include "runtime/trace/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/io/output_file.h"

namespace fasa {
namespace {

using Json = nlohmann::json;

constexpr int kProcess = 1;
constexpr uint32_t kStepsThread = 1u << 30;  // beyond all streams
constexpr const char* kDirections[2] = {"host to device", "device to host"};

double microseconds(double seconds) { return seconds * 1e6; }
uint32_t thread_of(TimelineStream stream) { return stream + 1; }  // some viewers treat 0 as none

// Timed events, for sorting.
struct TimedEvent {
  double seconds;
  Json json;
};

Json metadata(const char* name, uint32_t thread, Json args) {
  return {{"name", name}, {"ph", "M"}, {"pid", kProcess}, {"tid", thread}, {"args", args}};
}

Json counter(const char* name, double seconds, const char* series, double value) {
  return {{"name", name},
          {"ph", "C"},
          {"pid", kProcess},
          {"ts", microseconds(seconds)},
          {"args", {{series, value}}}};
}

void add_tag(Json& args, const char* prefix, OperationTag tag) {
  if (tag.layer >= 0) args[std::string(prefix) + "layer"] = tag.layer;
  args[std::string(prefix) + "cause"] = cause_name(tag.cause);
}

Json work_args(const TimelineEntry& entry) {
  Json args = Json::object();
  add_tag(args, "", entry.tag);
  const uint64_t link_bytes[2] = {entry.work.h2d_bytes, entry.work.d2h_bytes};
  const char* const link_names[2] = {"h2d", "d2h"};
  if (entry.work.device_bytes > 0) args["device_bytes"] = entry.work.device_bytes;
  for (size_t d = 0; d < 2; ++d) {
    if (link_bytes[d] == 0) continue;
    const std::string name = link_names[d];
    args[name + "_bytes"] = link_bytes[d];
    args[name + "_link_start_us"] = microseconds(entry.link[d].start);
    args[name + "_link_us"] = microseconds(entry.link[d].seconds());
  }
  args["enqueued_us"] = microseconds(entry.enqueued);
  return args;
}

class TraceEvents {
 public:
  explicit TraceEvents(const Timeline& timeline) : streams_(timeline.streams()) {
    const std::vector<TimelineEntry> entries = timeline.entries();
    for (const TimelineEntry& entry : entries) add(entry);
    add_steps(entries);
    add_arrows(entries);
    for (size_t direction = 0; direction < 2; ++direction) add_bytes_in_flight(entries, direction);
    for (const TimelineSample& sample : timeline.samples()) {
      const char* series = sample.name == kDeviceMemoryCounter ? "bytes" : "value";
      events_.push_back(
          {sample.seconds, counter(sample.name, sample.seconds, series, sample.value)});
    }
    std::stable_sort(events_.begin(), events_.end(), [](const TimedEvent& a, const TimedEvent& b) {
      return a.seconds < b.seconds;
    });
  }

  // One event per line keeps the file readable.
  void append_to(std::string& text, const std::string& process) const {
    text += metadata("process_name", 0, {{"name", process}}).dump();
    text += ",\n" + metadata("thread_name", kStepsThread, {{"name", "steps and layers"}}).dump();
    text += ",\n" + metadata("thread_sort_index", kStepsThread, {{"sort_index", -1}}).dump();
    for (const auto& [stream, name] : streams_) {
      const uint32_t thread = thread_of(stream);
      text += ",\n" + metadata("thread_name", thread, {{"name", name}}).dump();
      text += ",\n" + metadata("thread_sort_index", thread, {{"sort_index", thread}}).dump();
    }
    for (const TimedEvent& event : events_) text += ",\n" + event.json.dump();
  }

 private:
  void add(const TimelineEntry& entry) {
    const bool wait = entry.kind == TimelineEntry::Kind::kWait;
    const std::string name = wait ? wait_name(entry.awaited) : entry.name;
    events_.push_back({entry.span.start,
                       {{"name", name},
                        {"cat", wait ? "wait" : cause_name(entry.tag.cause)},
                        {"ph", "X"},
                        {"pid", kProcess},
                        {"tid", thread_of(entry.stream)},
                        {"ts", microseconds(entry.span.start)},
                        {"dur", microseconds(entry.span.seconds())},
                        {"args", wait ? wait_args(entry) : work_args(entry)}}});
  }

  void add_span(const std::string& name, TimeSpan span) {
    events_.push_back({span.start,
                       {{"name", name},
                        {"cat", "compute"},
                        {"ph", "X"},
                        {"pid", kProcess},
                        {"tid", kStepsThread},
                        {"ts", microseconds(span.start)},
                        {"dur", microseconds(span.seconds())},
                        {"args", Json::object()}}});
  }

  // A step begins where the compute stream goes back from a later layer to an earlier one.
  void add_steps(const std::vector<TimelineEntry>& entries) {
    std::vector<const TimelineEntry*> work;
    for (const TimelineEntry& entry : entries) {
      const bool computes = entry.kind == TimelineEntry::Kind::kWork && entry.tag.layer >= 0 &&
                            entry.tag.cause == Cause::kCompute;
      if (computes) work.push_back(&entry);
    }
    std::sort(work.begin(), work.end(), [](const TimelineEntry* a, const TimelineEntry* b) {
      return a->span.start < b->span.start;
    });
    for (size_t first = 0, step = 0; first < work.size(); ++step) {
      size_t last = first;
      while (last + 1 < work.size() && work[last + 1]->tag.layer >= work[last]->tag.layer) ++last;
      add_step(step, {work.begin() + static_cast<ptrdiff_t>(first),
                      work.begin() + static_cast<ptrdiff_t>(last) + 1});
      first = last + 1;
    }
  }

  void add_step(size_t number, const std::vector<const TimelineEntry*>& work) {
    const auto end_of = [](const TimelineEntry* a, const TimelineEntry* b) {
      return a->span.end < b->span.end;
    };
    const double end = (*std::max_element(work.begin(), work.end(), end_of))->span.end;
    add_span(fmt::format("step {}", number), {work.front()->span.start, end});
    for (size_t i = 0; i < work.size();) {
      const int layer = work[i]->tag.layer;
      TimeSpan span{work[i]->span.start, work[i]->span.end};
      for (; i < work.size() && work[i]->tag.layer == layer; ++i) {
        span.end = std::max(span.end, work[i]->span.end);
      }
      add_span(fmt::format("layer {}", layer), span);
    }
  }

  // A wait's arrow begins at the last operation of that name and layer that ended before the wait
  // did, and ends at the work after the wait.
  void add_arrows(const std::vector<TimelineEntry>& entries) {
    using Key = std::tuple<TimelineStream, std::string_view, int>;
    std::map<Key, std::map<double, const TimelineEntry*>> fetches;  // by end
    const auto brings_rows = [](Cause cause) {
      return cause == Cause::kMiss || cause == Cause::kPrefetch;
    };
    for (const TimelineEntry& entry : entries) {
      if (entry.kind != TimelineEntry::Kind::kWork || !brings_rows(entry.tag.cause)) continue;
      fetches[{entry.stream, entry.name, entry.tag.layer}][entry.span.end] = &entry;
    }
    for (const TimelineEntry& wait : entries) {
      const auto& awaited = wait.awaited;
      const bool for_rows = wait.kind == TimelineEntry::Kind::kWait && awaited.name != nullptr &&
                            brings_rows(awaited.tag.cause);
      if (!for_rows) continue;
      const auto found = fetches.find({awaited.stream, awaited.name, awaited.tag.layer});
      if (found == fetches.end()) continue;
      auto fetch = found->second.upper_bound(wait.span.end + 1e-9);
      if (fetch != found->second.begin()) add_arrow(*std::prev(fetch)->second, wait);
    }
  }

  void add_arrow(const TimelineEntry& fetch, const TimelineEntry& wait) {
    ++arrows_;
    const auto end = [&](const char* phase, TimelineStream stream, double seconds) {
      events_.push_back({seconds,
                         {{"name", "rows"},
                          {"cat", "rows"},
                          {"ph", phase},
                          {"id", arrows_},
                          {"pid", kProcess},
                          {"tid", thread_of(stream)},
                          {"ts", microseconds(seconds)}}});
    };
    end("s", fetch.stream, fetch.span.start);
    end("f", wait.stream, wait.span.end);
  }

  static std::string wait_name(const TimelineEntry::Source& awaited) {
    return fmt::format("wait for {}", awaited.name == nullptr ? "an event" : awaited.name);
  }

  Json wait_args(const TimelineEntry& entry) const {
    Json args = Json::object();
    add_tag(args, "", entry.tag);
    const auto stream = streams_.find(entry.awaited.stream);
    if (stream != streams_.end()) args["awaited_stream"] = stream->second;
    if (entry.awaited.name != nullptr) add_tag(args, "awaited_", entry.awaited.tag);
    return args;
  }

  // A transfer's bytes count from its first byte sent until its last; all active transfers are
  // summed.
  void add_bytes_in_flight(const std::vector<TimelineEntry>& entries, size_t direction) {
    std::vector<std::pair<double, int64_t>> changes;
    for (const TimelineEntry& entry : entries) {
      const auto bytes =
          static_cast<int64_t>(direction == 0 ? entry.work.h2d_bytes : entry.work.d2h_bytes);
      if (bytes == 0) continue;
      changes.emplace_back(entry.link[direction].start, bytes);
      changes.emplace_back(entry.link[direction].end, -bytes);
    }
    std::sort(changes.begin(), changes.end());
    const std::string name = fmt::format("bytes in flight, {}", kDirections[direction]);
    int64_t now = 0;
    for (size_t i = 0; i < changes.size(); ++i) {
      now += changes[i].second;
      const double seconds = changes[i].first;
      if (i + 1 < changes.size() && changes[i + 1].first == seconds) continue;
      events_.push_back(
          {seconds, counter(name.c_str(), seconds, "bytes", static_cast<double>(now))});
    }
  }

  std::map<TimelineStream, std::string> streams_;
  std::vector<TimedEvent> events_;
  uint64_t arrows_ = 0;
};

}  // namespace

std::string trace_json(const Timeline& timeline, const TraceSource& source) {
  const Json other = {{"device", source.device},
                      {"clock", source.virtual_clock ? "virtual" : "wall"},
                      {"dropped", timeline.dropped()}};
  std::string text = "{\"displayTimeUnit\":\"ns\",\"otherData\":" + other.dump();
  text += ",\"traceEvents\":[\n";
  TraceEvents(timeline).append_to(text, fmt::format("fasa on {}", source.device));
  text += "\n]}\n";
  return text;
}

DeviceTrace::DeviceTrace(Device& device) : device_(device) { device.set_timeline(&timeline_); }
DeviceTrace::~DeviceTrace() { device_.set_timeline(nullptr); }

void DeviceTrace::write(const std::string& path) const {
  const TraceSource source{device_.name(), device_.virtual_clock()};
  write_file_atomically(path, trace_json(timeline_, source));
  if (timeline_.dropped() == 0) return;
  log_warning(fmt::format("{}: dropped {} events after the first {}; trace fewer tokens", path,
                          timeline_.dropped(), Timeline::kMaxEntries));
}

}  // namespace fasa
