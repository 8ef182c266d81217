#include "tools/analyze_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "tools/line_chart.h"
#include "tools/svg.h"

namespace fasa {
namespace {

// Light to dark, in equal steps of lightness.
constexpr int kShades = 16;
std::string shade(int level) {
  constexpr std::array kLight = {247, 251, 255}, kMiddle = {107, 174, 214}, kDark = {8, 48, 107};
  const double at = static_cast<double>(level) / (kShades - 1);
  std::string colour = "#";
  for (size_t i = 0; i < 3; ++i) {
    const double value = at < 0.5 ? kLight[i] + (kMiddle[i] - kLight[i]) * at * 2
                                  : kMiddle[i] + (kDark[i] - kMiddle[i]) * (at - 0.5) * 2;
    colour += fmt::format("{:02x}", static_cast<int>(std::lround(value)));
  }
  return colour;
}

double largest_agreement(const Analysis& analysis) {
  double largest = 0;
  const AgreementTable& shape = analysis.agreement.front();
  for (int layer = 0; layer < shape.layers(); ++layer) {
    for (int head = 0; head < shape.query_heads(); ++head) {
      for (int chunk = 0; chunk < shape.chunks(); ++chunk) {
        largest = std::max(largest, analysis.mean_agreement(layer, head, chunk));
      }
    }
  }
  return std::max(largest, 1e-6);
}

// The cells of one layer from (x, y) on. Cells of one shade share a path, because a model has tens
// of thousands of cells.
std::string layer_cells(const Analysis& analysis, int layer, double x, double y, double cell_width,
                        double cell_height, double top) {
  const AgreementTable& shape = analysis.agreement.front();
  std::array<std::string, kShades> paths;
  for (int head = 0; head < shape.query_heads(); ++head) {
    for (int chunk = 0; chunk < shape.chunks(); ++chunk) {
      const double share = analysis.mean_agreement(layer, head, chunk) / top;
      const auto level = static_cast<size_t>(std::clamp(share * kShades, 0.0, kShades - 1.0));
      paths[level] += fmt::format("M{:.1f} {:.1f}h{:.1f}v{:.1f}h-{:.1f}z", x + chunk * cell_width,
                                  y + head * cell_height, cell_width, cell_height, cell_width);
    }
  }
  std::string text;
  for (int level = 0; level < kShades; ++level) {
    const std::string& path = paths[static_cast<size_t>(level)];
    if (!path.empty()) text += fmt::format("<path d=\"{}\" fill=\"{}\"/>\n", path, shade(level));
  }
  return text + fmt::format(
                    "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
                    "fill=\"none\" stroke=\"#8a94a0\"/>\n",
                    x, y, cell_width * shape.chunks(), cell_height * shape.query_heads());
}

std::string shade_key(double x, double y, double top) {
  constexpr double kWidth = 14;
  std::string text = text_at(x, y - 4, "mean CA");
  for (int level = 0; level < kShades; ++level) {
    text += rect_at(
        x + level * kWidth, y, kWidth, 12, shade(level).c_str(),
        fmt::format("{:.2f} to {:.2f}", top * level / kShades, top * (level + 1) / kShades));
  }
  return text + text_at(x, y + 25, "0") +
         text_at(x + kShades * kWidth, y + 25, fmt::format("{:.2f}", top), "end");
}

std::vector<double> values_of_layer(const Analysis& analysis, int layer) {
  const AgreementTable& shape = analysis.agreement.front();
  std::vector<double> values;
  for (int head = 0; head < shape.query_heads(); ++head) {
    for (int chunk = 0; chunk < shape.chunks(); ++chunk) {
      values.push_back(analysis.mean_agreement(layer, head, chunk));
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace

std::string agreement_heatmaps_svg(const Analysis& analysis) {
  const AgreementTable& shape = analysis.agreement.front();
  const int columns = shape.layers() > 1 ? 2 : 1;
  constexpr double kGap = 56, kHead = 22, kFoot = 40;
  const double block = (kSvgWidth - kGap * columns - 10) / columns;
  const double cell_width = block / shape.chunks();
  const double cell_height = std::clamp(240.0 / shape.query_heads(), 5.0, 24.0);
  const double block_height = cell_height * shape.query_heads() + kHead + kFoot;
  const int rows = (shape.layers() + columns - 1) / columns;
  const double top = largest_agreement(analysis);
  std::string text = svg_begin(rows * block_height + 50) + shade_key(kGap, 16, top);
  for (int layer = 0; layer < shape.layers(); ++layer) {
    const double x = kGap + (layer % columns) * (block + kGap);
    const double y = 50 + (layer / columns) * block_height + kHead;
    text += text_at(x, y - 6, fmt::format("layer {}", layer));
    text += layer_cells(analysis, layer, x, y, cell_width, cell_height, top);
    const int every = shape.query_heads() > 16 ? 8 : 1;
    for (int head = 0; head < shape.query_heads(); head += every) {
      text +=
          text_at(x - 5, y + (head + 0.5) * cell_height + 4, fmt::format("head {}", head), "end");
    }
    const double foot = y + cell_height * shape.query_heads();
    const int step = shape.chunks() > 40 ? 8 : 4;
    for (int chunk = 0; chunk < shape.chunks(); chunk += step) {
      text += text_at(x + (chunk + 0.5) * cell_width, foot + 14, fmt::to_string(chunk), "middle");
    }
    text += text_at(x + block / 2, foot + 28, "frequency chunk (0 rotates fastest)", "middle");
  }
  return text + svg_end();
}

std::string agreement_cdf_svg(const Analysis& analysis) {
  LineChart chart{.x = {.label = "mean contextual agreement (CA) of a frequency chunk"},
                  .y = {.label = "frequency chunks at or below, %", .high = 100},
                  .series = {},
                  .marks = {{0.15, "0.15"}, {0.4, "0.4"}}};
  chart.x.high = std::max(0.5, std::ceil(largest_agreement(analysis) * 10) / 10);
  for (int layer = 0; layer < analysis.agreement.front().layers(); ++layer) {
    const auto values = values_of_layer(analysis, layer);
    ChartSeries series{.name = fmt::format("layer {}", layer), .points = {{0, 0}}, .marked = false};
    for (size_t i = 0; i < values.size(); ++i) {
      series.points.emplace_back(
          values[i], 100.0 * static_cast<double>(i + 1) / static_cast<double>(values.size()));
    }
    series.points.emplace_back(chart.x.high, 100);
    chart.series.push_back(std::move(series));
  }
  return line_chart_svg(chart);
}

std::string compound_svg(const CompoundTable& table) {
  LineChart chart{.x = {.label = "K: number of tokens (logarithmic)",
                        .low = 64,
                        .high = 2048,
                        .logarithmic = true,
                        .ticks = {64, 128, 256, 512, 1024, 2048}},
                  .y = {.label = "agreement with the head's own best K tokens, %", .high = 100},
                  .series = {}};
  for (size_t row = 0; row < table.rows.size(); ++row) {
    ChartSeries series{.name = table.rows[row], .points = {}};
    for (size_t w = 0; w < table.windows.size(); ++w) {
      if (table.share[row][w] < 0) continue;
      series.points.emplace_back(static_cast<double>(table.windows[w]), 100 * table.share[row][w]);
    }
    chart.series.push_back(std::move(series));
  }
  return line_chart_svg(chart);
}

std::string fifths_svg(const FifthsTable& fifths) {
  constexpr double kHeight = 240, kPlotHeight = 180, kSlot = 130, kBar = 44;
  std::string text = svg_begin(kHeight) + vertical_axis(100, 12, kPlotHeight, "%");
  for (size_t i = 0; i < fifths.dominant.size(); ++i) {
    const double x = kSvgLeft + 24 + kSlot * static_cast<double>(i);
    const auto bar = [&](double at, double share, const char* colour, const char* what) {
      const double height = share * kPlotHeight;
      text += rect_at(at, 12 + kPlotHeight - height, kBar, height, colour,
                      fmt::format("{}: {:.1f} %", what, 100 * share));
      text += text_at(at + kBar / 2, 12 + kPlotHeight - height - 3,
                      fmt::format("{:.0f}", 100 * share), "middle");
    };
    bar(x, fifths.dominant[i], series_colour(0), "by the dominant FC");
    bar(x + kBar, fifths.others[i], series_colour(5), "by another FC");
    constexpr std::array kNames = {"most important fifth", "second", "third", "fourth",
                                   "least important"};
    text += text_at(x + kBar, 12 + kPlotHeight + 18, kNames[i], "middle");
  }
  return text + svg_end() +
         colour_key({{series_colour(0), "found by the head's dominant FC alone"},
                     {series_colour(5), "by an FC beyond the first quarter (mean)"}});
}

std::string size_overlap_svg(const std::vector<double>& overlap) {
  LineChart chart{.x = {.label = "tenths of the queries used to make the map",
                        .low = 2,
                        .high = 10,
                        .ticks = {2, 3, 4, 5, 6, 7, 8, 9, 10}},
                  .y = {.label = "FCs in common with the map from all queries, %", .high = 100},
                  .series = {{.name = "mean over texts", .points = {}}},
                  .height = 240};
  for (size_t i = 0; i < overlap.size(); ++i) {
    chart.series[0].points.emplace_back(static_cast<double>(i + 2), 100 * overlap[i]);
  }
  return line_chart_svg(chart);
}

std::string selections_svg(const std::vector<SelectionAttention>& selections,
                           CapturedAttention SelectionAttention::*queries) {
  std::map<int64_t, bool> budgets;
  std::vector<std::string> methods;
  for (const SelectionAttention& one : selections) {
    budgets[one.budget] = true;
    if (std::find(methods.begin(), methods.end(), one.method) == methods.end()) {
      methods.push_back(one.method);
    }
  }
  LineChart chart{.x = {.label = "tokens attended to (logarithmic)",
                        .low = static_cast<double>(budgets.begin()->first),
                        .high = static_cast<double>(
                            std::max(budgets.rbegin()->first, 2 * budgets.begin()->first)),
                        .logarithmic = true},
                  .y = {.label = "distant attention captured, %", .high = 100},
                  .series = {}};
  for (const auto& [budget, there] : budgets) chart.x.ticks.push_back(static_cast<double>(budget));
  for (const std::string& method : methods) {
    ChartSeries series{.name = method, .points = {}};
    for (const SelectionAttention& one : selections) {
      if (one.method != method) continue;
      series.points.emplace_back(static_cast<double>(one.budget),
                                 100 * (one.*queries).distant_share());
    }
    std::sort(series.points.begin(), series.points.end());
    chart.series.push_back(std::move(series));
  }
  return line_chart_svg(chart);
}

std::string slices_svg(const std::vector<SliceChoiceAttention>& slices, size_t kind) {
  LineChart chart{.x = {.label = "slice bytes per token and KV head (logarithmic)",
                        .low = 1e9,
                        .high = 0,
                        .logarithmic = true},
                  .y = {.label = "distant attention kept, % of the oracle's", .high = 100},
                  .series = {}};
  for (const SliceChoiceAttention& one : slices) {
    chart.x.low = std::min(chart.x.low, one.bytes);
    chart.x.high = std::max(chart.x.high, one.bytes);
    const std::string name = fmt::format("{}", slice_dtype_name(one.dtype));
    if (chart.series.empty() || chart.series.back().name != name) {
      chart.series.push_back({.name = name, .points = {}});
    }
    chart.series.back().points.emplace_back(one.bytes, 100 * one.kept(kind));
  }
  for (double tick = std::exp2(std::ceil(std::log2(chart.x.low))); tick <= chart.x.high;
       tick *= 2) {
    chart.x.ticks.push_back(tick);
  }
  return line_chart_svg(chart);
}

}  // namespace fasa
