// Splits, replaces and formats texts like Python's str methods.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/template/arguments.h"
#include "runtime/text/template/functions/marked_text.h"
#include "runtime/text/template/work.h"

namespace fasa::jinja {

// Begin and end of each part, in bytes. `most`: maximum number of cuts; negative: no limit.
using Cuts = std::vector<std::pair<size_t, size_t>>;
// str.split(separator, most). Throws Failure for an empty separator.
Cuts split_at(std::string_view text, std::string_view separator, int64_t most);
// str.split(None, most): at runs of white space, which are dropped.
Cuts split_at_space(std::string_view text, int64_t most);

// str.replace(from, to, most).
MarkedText replaced(const MarkedText& text, std::string_view from, const MarkedText& to,
                    int64_t most, Work& work);

// str.format() of plain fields: {}, {0}, {name}. Throws Failure for other fields.
MarkedText formatted(const MarkedText& format, const Arguments& arguments, Work& work);

}  // namespace fasa::jinja
