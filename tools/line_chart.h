// Curves over one axis as SVG, with named axes and a key.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fasa {

struct ChartAxis {
  std::string label;  // with the unit
  double low = 0, high = 1;
  bool logarithmic = false;        // base 2; low > 0
  std::vector<double> ticks = {};  // where numbers stand; none: by the range
};

struct ChartSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // rising x
  bool marked = true;                             // a dot at each point
};

struct LineChart {
  ChartAxis x, y;
  std::vector<ChartSeries> series;
  std::vector<std::pair<double, std::string>> marks = {};  // upright lines at x, with their names
  double width = 760, height = 320;
};

// Colours repeat after ten series, then dashed. The key stands to the right.
std::string line_chart_svg(const LineChart& chart);

// The colour of series `index`.
const char* series_colour(size_t index);

}  // namespace fasa
