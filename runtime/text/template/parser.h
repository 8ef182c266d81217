// Parses a template into statements.
#pragma once

#include <string_view>

#include "runtime/text/template/ast.h"

namespace fasa::jinja {

// `source`: normalized lines, valid UTF-8. `depth`: of blocks and brackets in each other. Throws
// SyntaxFailure, also for what Jinja has and this engine has not.
Body parse_template(std::string_view source, int depth);

}  // namespace fasa::jinja
