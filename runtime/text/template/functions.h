// Functions that templates call by name.
#pragma once

#include <ctime>
#include <optional>
#include <string_view>

#include "runtime/text/template/arguments.h"

namespace fasa::jinja {

// Nothing where there is none of this name. Throws Failure for one that Jinja has and this engine
// has not.
std::optional<Function> find_function(std::string_view name);
// `now`: what strftime_now shows.
Value call_function(const Function& function, const Arguments& arguments, const std::tm& now,
                    Work& work);
// Throws Failure for a name or value that a namespace may not hold: names that begin with _, and
// values that refer to a part of the running template (namespaces, macros, loops).
void set_member(Namespace& members, std::string_view name, const Value& value);
// True for values that lists and dicts may not hold either.
bool refers_to_scope(const Value& value);

}  // namespace fasa::jinja
