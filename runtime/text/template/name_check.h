// Checks the names of filters and tests in a template before it runs.
#pragma once

#include "runtime/text/template/ast.h"

namespace fasa::jinja {

// Throws SyntaxFailure at the first unknown name. As in Jinja, names inside an if or a conditional
// expression are not checked and fail when reached: templates use this to detect features.
void check_names(const Body& body);

}  // namespace fasa::jinja
