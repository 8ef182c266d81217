// Line charts as SVG, with labelled axes and a legend.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fasa {

struct ChartAxis {
  std::string label;  // with the unit
  double low = 0, high = 1;
  bool logarithmic = false;        // base 2; low > 0
  std::vector<double> ticks = {};  // labelled values; empty: chosen from the range
};

struct ChartSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // rising x
  bool marked = true;                             // a dot at each point
};

struct LineChart {
  ChartAxis x, y;
  std::vector<ChartSeries> series;
  std::vector<std::pair<double, std::string>> marks = {};  // vertical lines at x, with labels
  double width = 760, height = 320;
};

// Colours repeat after ten series, then with dashes. The legend is on the right.
std::string line_chart_svg(const LineChart& chart);

// The colour of series `index`.
const char* series_colour(size_t index);

}  // namespace fasa
