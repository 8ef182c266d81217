// The filters, applied by `|`.
#pragma once

#include <string>
#include <string_view>

#include "runtime/text/template/arguments.h"

namespace fasa::jinja {

bool is_filter(std::string_view name);
std::string unknown_filter(std::string_view name);  // the error message
// Throws Failure, also for an unknown name.
Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments,
                   Work& work);

}  // namespace fasa::jinja
