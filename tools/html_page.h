// The frame of every report: one page that needs nothing beside itself, styles inline, pictures as
// SVG.
#pragma once

#include <string>
#include <string_view>

namespace fasa {

std::string html_escaped(std::string_view text);

std::string html_begin(std::string_view title);  // up to the body's begin
std::string html_end();

}  // namespace fasa
