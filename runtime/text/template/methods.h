// Methods of texts and dicts.
#pragma once

#include "runtime/text/template/arguments.h"

namespace fasa::jinja {

// Throws Failure for a method of Python that is not supported.
Value call_method(const Method& method, const Arguments& arguments, Work& work);

}  // namespace fasa::jinja
