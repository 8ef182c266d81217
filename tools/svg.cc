#include "tools/svg.h"

#include <fmt/format.h>

#include <cmath>

#include "tools/html_page.h"

namespace fasa {

std::string svg_begin(double height) {
  return fmt::format(
      "<div class=\"wide\"><svg width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" role=\"img\">\n",
      kSvgWidth, height);
}
std::string svg_end() { return "</svg></div>\n"; }

std::string text_at(double x, double y, std::string_view text, std::string_view anchor) {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"#43505e\">{}"
      "</text>\n",
      x, y, anchor, html_escaped(text));
}
std::string line_at(double x1, double y1, double x2, double y2, const char* colour) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" "
      "stroke=\"{}\"/>\n",
      x1, y1, x2, y2, colour);
}
std::string rect_at(double x, double y, double width, double height, const char* colour,
                    const std::string& title) {
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" "
      "fill=\"{}\"><title>{}</title></rect>\n",
      x, y, width, height, colour, html_escaped(title));
}

double tick_of(double range, int most) {
  if (!(range > 0)) return 1;
  const double least = range / most;
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
}

std::string colour_key(std::initializer_list<std::pair<const char*, const char*>> parts) {
  std::string text = "<p>";
  for (const auto& [colour, name] : parts) {
    text +=
        fmt::format("<span class=\"key\"><i style=\"background:{}\"></i>{}</span>", colour, name);
  }
  return text + "</p>\n";
}

std::string vertical_axis(double top, double y0, double height, const char* format_unit) {
  std::string text;
  const double tick = tick_of(top, 5);
  for (double value = 0; value <= top * 1.0001; value += tick) {
    const double y = y0 + height * (1 - value / top);
    text += line_at(kSvgLeft, y, kSvgLeft + kSvgPlot, y) +
            text_at(kSvgLeft - 6, y + 4, fmt::format("{:g} {}", value, format_unit), "end");
  }
  return text;
}

}  // namespace fasa
