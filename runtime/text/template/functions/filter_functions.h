// One function per filter, under Jinja's name.
#pragma once

#include "runtime/text/template/arguments.h"

namespace fasa::jinja {

using Filter = Value (*)(const Value& value, const Arguments& arguments, Work& work);

// text_filters.cc
Value filter_capitalize(const Value& value, const Arguments& arguments, Work& work);
Value filter_indent(const Value& value, const Arguments& arguments, Work& work);
Value filter_join(const Value& value, const Arguments& arguments, Work& work);
Value filter_lower(const Value& value, const Arguments& arguments, Work& work);
Value filter_replace(const Value& value, const Arguments& arguments, Work& work);
Value filter_safe(const Value& value, const Arguments& arguments, Work& work);
Value filter_string(const Value& value, const Arguments& arguments, Work& work);
Value filter_title(const Value& value, const Arguments& arguments, Work& work);
Value filter_tojson(const Value& value, const Arguments& arguments, Work& work);
Value filter_trim(const Value& value, const Arguments& arguments, Work& work);
Value filter_upper(const Value& value, const Arguments& arguments, Work& work);

// list_filters.cc
Value filter_dictsort(const Value& value, const Arguments& arguments, Work& work);
Value filter_first(const Value& value, const Arguments& arguments, Work& work);
Value filter_items(const Value& value, const Arguments& arguments, Work& work);
Value filter_last(const Value& value, const Arguments& arguments, Work& work);
Value filter_list(const Value& value, const Arguments& arguments, Work& work);
Value filter_map(const Value& value, const Arguments& arguments, Work& work);
Value filter_max(const Value& value, const Arguments& arguments, Work& work);
Value filter_min(const Value& value, const Arguments& arguments, Work& work);
Value filter_reject(const Value& value, const Arguments& arguments, Work& work);
Value filter_rejectattr(const Value& value, const Arguments& arguments, Work& work);
Value filter_select(const Value& value, const Arguments& arguments, Work& work);
Value filter_selectattr(const Value& value, const Arguments& arguments, Work& work);
Value filter_sort(const Value& value, const Arguments& arguments, Work& work);
Value filter_unique(const Value& value, const Arguments& arguments, Work& work);

// number_filters.cc
Value filter_default(const Value& value, const Arguments& arguments, Work& work);
Value filter_float(const Value& value, const Arguments& arguments, Work& work);
Value filter_int(const Value& value, const Arguments& arguments, Work& work);
Value filter_length(const Value& value, const Arguments& arguments, Work& work);

}  // namespace fasa::jinja
