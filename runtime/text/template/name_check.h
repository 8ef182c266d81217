// Filters and tests that a template names must be known before it runs.
#pragma once

#include "runtime/text/template/ast.h"

namespace fasa::jinja {

// Throws SyntaxFailure at the first unknown one. As Jinja does, it leaves out those inside of an if
// or a conditional expression, which fail when they are reached: templates try what an environment
// has in this way.
void check_names(const Body& body);

}  // namespace fasa::jinja
