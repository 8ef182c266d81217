// The tests, applied by `is`.
#pragma once

#include <string>
#include <string_view>

#include "runtime/text/template/arguments.h"

namespace fasa::jinja {

bool is_test(std::string_view name);
std::string unknown_test(std::string_view name);  // the error message
// Throws Failure, also for an unknown name.
bool apply_test(std::string_view name, const Value& value, const Arguments& arguments, Work& work);

}  // namespace fasa::jinja
