// Lookups in values, a.b, a["b"] and a[1:2], and calls of the methods of texts and dicts.
#pragma once

#include <string_view>

#include "runtime/text/template/arguments.h"
#include "runtime/text/template/value.h"
#include "runtime/text/template/work.h"

namespace fasa::jinja {

// Looks an attribute up in Jinja's order: methods, then items. Undefined if there is none; throws
// Failure on an undefined object.
Value attribute_of(const Value& object, std::string_view name, Work& work);
// Looks up items first, then methods.
Value item_of(const Value& object, const Value& key, Work& work);
// The item at a path of names and indexes, such as "a.b.0", by repeated item_of. `otherwise`
// replaces each undefined item; null: no replacement.
Value path_of(const Value& object, const Value& path, Work& work, const Value* otherwise = nullptr);
// Bounds and step are integers or none. Throws Failure for objects without indexes.
Value slice_of(const Value& object, const Value& begin, const Value& end, const Value& step,
               Work& work);

// Throws Failure for a method of Python that is not supported.
Value call_method(const Method& method, const Arguments& arguments, Work& work);

}  // namespace fasa::jinja
