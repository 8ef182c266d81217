// Methods of texts and dicts.
#pragma once

#include "runtime/text/template/arguments.h"

namespace fasa::jinja {

// Throws Failure for a method that Python has and this engine has not.
Value call_method(const Method& method, const Arguments& arguments, Work& work);

}  // namespace fasa::jinja
