// SVG elements for the pictures in reports. Lengths in pixels.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace fasa {

constexpr double kSvgWidth = 1120;
constexpr double kSvgLeft = 90;  // space for names
constexpr double kSvgPlot = kSvgWidth - kSvgLeft - 10;

std::string svg_begin(double height);
std::string svg_end();
// `anchor`: start, middle or end of the text is at x.
std::string text_at(double x, double y, std::string_view text, std::string_view anchor = "start");
std::string line_at(double x1, double y1, double x2, double y2, const char* colour = "#d8dee5");
// `title` is shown as a tooltip.
std::string rect_at(double x, double y, double width, double height, const char* colour,
                    const std::string& title);
// The smallest of 1, 2, 5, 10, ... that divides `range` into at most `most` parts.
double tick_of(double range, int most);
// A plot's vertical axis: grid lines and numbers from 0 to `top`.
std::string vertical_axis(double top, double y0, double height, const char* format_unit);
// A legend: (colour, name).
std::string colour_key(std::initializer_list<std::pair<const char*, const char*>> parts);

}  // namespace fasa
