// Functions that templates call by name.
#pragma once

#include <ctime>
#include <optional>
#include <string_view>

#include "runtime/text/template/arguments.h"

namespace fasa::jinja {

// nullopt for an unknown name. Throws Failure for a function of Jinja that is not supported.
std::optional<Function> find_function(std::string_view name);
// `now`: the time that strftime_now prints.
Value call_function(const Function& function, const Arguments& arguments, const std::tm& now,
                    Work& work);
// Throws Failure for a name or value that a namespace may not hold: names that begin with _, and
// values that refer to the running template (namespaces, macros, loops).
void set_member(Namespace& members, std::string_view name, const Value& value);
// Whether lists and dicts may not hold the value either.
bool refers_to_scope(const Value& value);

}  // namespace fasa::jinja
