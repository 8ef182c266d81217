// Looking things up in values: a.b, a["b"], a[1:2].
#pragma once

#include <string_view>

#include "runtime/text/template/value.h"
#include "runtime/text/template/work.h"

namespace fasa::jinja {

// As Jinja looks attributes up: a method first, then an item. Undefined where there is none; Failure
// on an undefined object.
Value attribute_of(const Value& object, std::string_view name, Work& work);
// An item first, then a method.
Value item_of(const Value& object, const Value& key, Work& work);
// The items at a path as filters take it, "a.b.0", each by item_of. `otherwise`: in place of each of
// them that is undefined; null: nothing is.
Value path_of(const Value& object, const Value& path, Work& work, const Value* otherwise = nullptr);
// Bounds and step are whole numbers or none. Throws Failure for objects without places.
Value slice_of(const Value& object, const Value& begin, const Value& end, const Value& step,
               Work& work);

}  // namespace fasa::jinja
