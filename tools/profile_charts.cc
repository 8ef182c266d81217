#include "tools/profile_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "tools/html_page.h"
#include "tools/svg.h"

namespace fasa {
namespace {

constexpr const char* kCompute = "#3b6fb6";
constexpr const char* kMiss = "#d1495b";
constexpr const char* kPrefetch = "#2a9d8f";
constexpr const char* kPrediction = "#c77dbb";
constexpr const char* kWriteBack = "#8d6ab8";
constexpr const char* kControl = "#9aa5b1";
constexpr const char* kWaitRows = "#f2c14e";
constexpr const char* kWaitOther = "#e7dfc6";

const char* colour_of(const TimelineEntry& entry) {
  if (entry.kind == TimelineEntry::Kind::kWait) return kWaitOther;
  switch (entry.tag.cause) {
    case Cause::kMiss:
      return kMiss;
    case Cause::kPrefetch:  // fetches move bytes, predictions compute
      return entry.work.h2d_bytes > 0 ? kPrefetch : kPrediction;
    case Cause::kWriteBack:
      return kWriteBack;
    case Cause::kControl:
      return kControl;
    case Cause::kCompute:
    case Cause::kPrefill:
      break;
  }
  return kCompute;
}

double step_begin(const ProfiledDecode& decode) {
  double begin = std::numeric_limits<double>::max();
  const auto compute = compute_stream(decode.last_step());
  for (const TimelineEntry& entry : decode.last_step()) {
    if (compute && entry.stream == *compute) begin = std::min(begin, entry.span.start);
  }
  return compute ? begin : 0;
}

std::string title_of(const TimelineEntry& entry, double begin) {
  const bool wait = entry.kind == TimelineEntry::Kind::kWait;
  std::string title =
      wait ? fmt::format("waits for {}",
                         entry.awaited.name == nullptr ? "an event" : entry.awaited.name)
           : std::string(entry.name);
  if (entry.tag.layer >= 0) title += fmt::format(", layer {}", entry.tag.layer);
  title += fmt::format(", {}: {:.1f} us at {:.1f}", cause_name(entry.tag.cause),
                       1e6 * entry.span.seconds(), 1e6 * (entry.span.start - begin));
  const uint64_t moved = entry.work.h2d_bytes + entry.work.d2h_bytes;
  if (moved > 0) title += fmt::format(", {} bytes over the link", moved);
  return title;
}

}  // namespace

double step_end(const ProfiledDecode& decode) {
  const double begin = step_begin(decode);
  double end = begin;
  for (const TimelineEntry& entry : decode.last_step()) end = std::max(end, entry.span.end);
  return end - begin;
}

TimeSpan middle_of_step(const ProfiledDecode& decode, int layers) {
  const auto compute = compute_stream(decode.last_step());
  const double begin = step_begin(decode);
  const int all = static_cast<int>(decode.profile().layers().size());
  const int first = std::max(0, (all - layers) / 2);
  TimeSpan shown{std::numeric_limits<double>::max(), 0};
  for (const TimelineEntry& entry : decode.last_step()) {
    if (!compute || entry.stream != *compute) continue;
    if (entry.tag.layer < first || entry.tag.layer >= first + layers) continue;
    shown.start = std::min(shown.start, entry.span.start - begin);
    shown.end = std::max(shown.end, entry.span.end - begin);
  }
  return shown.end > shown.start ? shown : TimeSpan{0, step_end(decode)};
}

std::string streams_svg(const ProfiledDecode& decode, TimeSpan shown) {
  constexpr double kLane = 26;
  constexpr double kBar = 18;
  if (shown.seconds() <= 0) return "<p>Nothing was recorded.</p>\n";
  const double begin = step_begin(decode);
  const double scale = kSvgPlot / shown.seconds();
  std::map<TimelineStream, std::vector<const TimelineEntry*>> lanes;
  const auto compute = compute_stream(decode.last_step());
  for (const TimelineEntry& entry : decode.last_step()) {
    // Copy streams wait most of the time, so their waits are not drawn.
    if (entry.kind == TimelineEntry::Kind::kWait && entry.stream != compute) continue;
    if (entry.span.end - begin <= shown.start || entry.span.start - begin >= shown.end) continue;
    lanes[entry.stream].push_back(&entry);
  }
  const auto names = decode.streams();
  const double height = kLane * static_cast<double>(lanes.size()) + 24;
  std::string text = svg_begin(height);
  const double tick = tick_of(shown.seconds() * 1e6, 12);
  for (double us = std::ceil(shown.start * 1e6 / tick) * tick; us <= shown.end * 1e6; us += tick) {
    const double x = kSvgLeft + (us / 1e6 - shown.start) * scale;
    text += line_at(x, 0, x, height - 18) +
            text_at(x, height - 5, fmt::format("{:g} us", us), "middle");
  }
  std::vector<TimelineStream> order;
  for (const auto& [stream, entries] : lanes) order.push_back(stream);
  std::stable_partition(order.begin(), order.end(),
                        [&](TimelineStream stream) { return stream == compute; });
  double y = 4;
  for (const TimelineStream stream : order) {
    const auto& entries = lanes[stream];
    const auto name = names.find(stream);
    text += text_at(kSvgLeft - 8, y + 13, name == names.end() ? "stream" : name->second, "end");
    for (const TimelineEntry* entry : entries) {
      const double from = std::max(shown.start, entry->span.start - begin);
      const double to = std::min(shown.end, entry->span.end - begin);
      const bool rows = entry->kind == TimelineEntry::Kind::kWait &&
                        (entry->awaited.tag.cause == Cause::kMiss ||
                         entry->awaited.tag.cause == Cause::kPrefetch);
      text +=
          rect_at(kSvgLeft + (from - shown.start) * scale, y, std::max(0.4, (to - from) * scale),
                  kBar, rows ? kWaitRows : colour_of(*entry), title_of(*entry, begin));
    }
    y += kLane;
  }
  return text + svg_end();
}

std::string cause_key() {
  return colour_key({{kCompute, "compute"},
                     {kWaitRows, "compute waits for rows"},
                     {kWaitOther, "compute waits for other work"},
                     {kMiss, "fetched on demand"},
                     {kPrediction, "prediction"},
                     {kPrefetch, "fetched ahead"},
                     {kWriteBack, "write-back"},
                     {kControl, "tables"}});
}

std::string hit_rate_svg(const Profile& profile) {
  constexpr double kHeight = 190;
  constexpr double kPlotHeight = kHeight - 32;
  const auto& points = profile.points();
  std::string text = svg_begin(kHeight) + vertical_axis(100, 8, kPlotHeight, "%");
  const double across = static_cast<double>(std::max<size_t>(2, points.size()) - 1);
  const double tick = std::max(1.0, tick_of(across, 12));
  for (double step = 0; step <= across; step += tick) {
    text += text_at(kSvgLeft + step / across * kSvgPlot, kHeight - 6, fmt::format("{:g}", step + 1),
                    "middle");
  }
  std::string path;
  std::string dots;
  for (size_t i = 0; i < points.size(); ++i) {
    const double x = kSvgLeft + static_cast<double>(i) / across * kSvgPlot;
    const double y = 8 + kPlotHeight * (1 - points[i].hit_rate);
    path += fmt::format("{}{:.1f} {:.1f} ", i == 0 ? "M" : "L", x, y);
    dots += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>step {}: "
        "{:.2f} %, {:.3f} ms</title></circle>\n",
        x, y, kCompute, i + 1, 100 * points[i].hit_rate, 1e3 * points[i].seconds);
  }
  text += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n", path,
                      kCompute);
  return text + dots + svg_end();
}

std::string layer_bars_svg(const Profile& profile) {
  constexpr double kHeight = 240;
  constexpr double kPlotHeight = kHeight - 32;
  const double steps = static_cast<double>(std::max<size_t>(1, profile.steps()));
  const auto& layers = profile.layers();
  double top = 1e-9;
  for (const LayerProfile& part : layers) {
    top = std::max({top, part.compute + part.waiting(), profile.transfer(part)});
  }
  const double top_us = top * 1e6 / steps;
  std::string text = svg_begin(kHeight) + vertical_axis(top_us, 8, kPlotHeight, "us");
  const double slot = kSvgPlot / static_cast<double>(std::max<size_t>(1, layers.size()));
  const double bar = std::min(24.0, slot * 0.4);
  const size_t every = layers.size() > 64 ? 8 : layers.size() > 40 ? 4 : 1;
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerProfile& part = layers[i];
    const double rows = part.wait(WaitReason::kRows);
    const double x = kSvgLeft + slot * static_cast<double>(i) + (slot - 2 * bar) / 2;
    double y = 8 + kPlotHeight;
    const auto stack = [&](double at, double seconds, const char* colour, const char* what) {
      const double us = seconds * 1e6 / steps;
      const double height = us / top_us * kPlotHeight;
      y -= height;
      text +=
          rect_at(at, y, bar, height, colour, fmt::format("layer {}, {}: {:.1f} us", i, what, us));
    };
    stack(x, part.compute, kCompute, "computing");
    stack(x, rows, kWaitRows, "waiting for rows");
    stack(x, part.waiting() - rows, kWaitOther, "other waits");
    y = 8 + kPlotHeight;
    stack(x + bar, profile.transfer(part), kMiss, "transfer of rows used");
    if (i % every == 0) text += text_at(x + bar, kHeight - 6, fmt::to_string(i), "middle");
  }
  return text + svg_end();
}

std::string bar_key() {
  return colour_key({{kCompute, "computing"},
                     {kWaitRows, "waiting for rows"},
                     {kWaitOther, "other waits"},
                     {kMiss, "transfer of rows used"}});
}

}  // namespace fasa
