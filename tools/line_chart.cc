#include "tools/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/html_page.h"
#include "tools/svg.h"

namespace fasa {
namespace {

constexpr double kLeft = 64, kTop = 22, kBottom = 44, kKeyGap = 16;
constexpr std::array<const char*, 10> kColours = {"#3b6fb6", "#d1495b", "#2a9d8f", "#8d6ab8",
                                                  "#e08e2b", "#5b5f66", "#7bb661", "#b5547f",
                                                  "#35a7c9", "#a0793d"};

double position(const ChartAxis& axis, double value) {
  if (axis.logarithmic) {
    return std::log2(value / axis.low) / std::log2(axis.high / axis.low);
  }
  return (value - axis.low) / (axis.high - axis.low);
}

std::vector<double> ticks_of(const ChartAxis& axis, int most) {
  if (!axis.ticks.empty()) return axis.ticks;
  std::vector<double> ticks;
  const double step = tick_of(axis.high - axis.low, most);
  // By multiplication, because repeated addition would accumulate rounding errors.
  for (int i = 0; axis.low + i * step <= axis.high + step / 1000; ++i) {
    ticks.push_back(axis.low + i * step);
  }
  return ticks;
}

class Plot {
 public:
  explicit Plot(const LineChart& chart)
      : chart_(chart), width_(chart.width - kLeft), height_(chart.height - kTop - kBottom) {}

  std::string svg() const {
    std::string text = svg_begin(std::max(chart_.height, key_height()));
    text += axes();
    for (const auto& [x, name] : chart_.marks) text += mark(x, name);
    for (size_t i = 0; i < chart_.series.size(); ++i) text += curve(i) + key_entry(i);
    return text + svg_end();
  }

 private:
  double x_of(double value) const { return kLeft + width_ * position(chart_.x, value); }
  double y_of(double value) const { return kTop + height_ * (1 - position(chart_.y, value)); }
  double key_height() const { return kTop + 18.0 * static_cast<double>(chart_.series.size()) + 8; }

  std::string axes() const {
    std::string text;
    for (const double value : ticks_of(chart_.y, 6)) {
      text += line_at(kLeft, y_of(value), kLeft + width_, y_of(value));
      text += text_at(kLeft - 6, y_of(value) + 4, fmt::format("{:.4g}", value), "end");
    }
    for (const double value : ticks_of(chart_.x, 10)) {
      text += line_at(x_of(value), kTop + height_, x_of(value), kTop + height_ + 4, "#8a94a0");
      text += text_at(x_of(value), kTop + height_ + 17, fmt::format("{:.4g}", value), "middle");
    }
    text += line_at(kLeft, kTop + height_, kLeft + width_, kTop + height_, "#8a94a0");
    text += text_at(kLeft + width_ / 2, kTop + height_ + 35, chart_.x.label, "middle");
    return text + text_at(4, 12, chart_.y.label);
  }

  std::string mark(double x, const std::string& name) const {
    return line_at(x_of(x), kTop, x_of(x), kTop + height_, "#8a94a0") +
           text_at(x_of(x) + 4, kTop + 10, name);
  }

  static std::string stroke(size_t index) {
    return fmt::format("stroke=\"{}\" stroke-width=\"1.8\"{}", series_colour(index),
                       index >= kColours.size() ? " stroke-dasharray=\"5 3\"" : "");
  }

  std::string curve(size_t index) const {
    const ChartSeries& series = chart_.series[index];
    std::string path, dots;
    for (const auto& [x, y] : series.points) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', x_of(x), y_of(y));
      if (!series.marked) continue;
      dots += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{}: {:.4g}, {:.4g}"
          "</title></circle>\n",
          x_of(x), y_of(y), series_colour(index), html_escaped(series.name), x, y);
    }
    return fmt::format("<path d=\"{}\" fill=\"none\" {}/>\n", path, stroke(index)) + dots;
  }

  std::string key_entry(size_t index) const {
    const double x = chart_.width + kKeyGap, y = kTop + 18.0 * static_cast<double>(index) + 6;
    return fmt::format("<path d=\"M{:.1f} {:.1f}h22\" fill=\"none\" {}/>\n", x, y, stroke(index)) +
           text_at(x + 28, y + 4, chart_.series[index].name);
  }

  const LineChart& chart_;
  double width_, height_;
};

}  // namespace

const char* series_colour(size_t index) { return kColours[index % kColours.size()]; }

std::string line_chart_svg(const LineChart& chart) { return Plot(chart).svg(); }

}  // namespace fasa
