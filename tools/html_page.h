// The frame of every HTML report: one self-contained page with inline styles and SVG pictures.
#pragma once

#include <string>
#include <string_view>

namespace fasa {

std::string html_escaped(std::string_view text);

std::string html_begin(std::string_view title);  // up to the start of the body
std::string html_end();

}  // namespace fasa
