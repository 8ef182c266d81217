// Parses a template into statements.
#pragma once

#include <string_view>

#include "runtime/text/template/ast.h"

namespace fasa::jinja {

// `source`: normalized lines, valid UTF-8. `depth`: limit on nested blocks and brackets. Throws
// SyntaxFailure, also for features of Jinja that are not supported.
Body parse_template(std::string_view source, int depth);

}  // namespace fasa::jinja
