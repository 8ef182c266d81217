#include "runtime/text/template/functions/filters.h"

#include <fmt/format.h>

#include <map>

#include "runtime/text/template/functions/filter_functions.h"

namespace fasa::jinja {
namespace {

const std::map<std::string_view, Filter>& filters() {
  static const std::map<std::string_view, Filter> known = {{"capitalize", filter_capitalize},
                                                           {"count", filter_length},
                                                           {"d", filter_default},
                                                           {"default", filter_default},
                                                           {"dictsort", filter_dictsort},
                                                           {"first", filter_first},
                                                           {"float", filter_float},
                                                           {"indent", filter_indent},
                                                           {"int", filter_int},
                                                           {"items", filter_items},
                                                           {"join", filter_join},
                                                           {"last", filter_last},
                                                           {"length", filter_length},
                                                           {"list", filter_list},
                                                           {"lower", filter_lower},
                                                           {"map", filter_map},
                                                           {"max", filter_max},
                                                           {"min", filter_min},
                                                           {"reject", filter_reject},
                                                           {"rejectattr", filter_rejectattr},
                                                           {"replace", filter_replace},
                                                           {"safe", filter_safe},
                                                           {"select", filter_select},
                                                           {"selectattr", filter_selectattr},
                                                           {"sort", filter_sort},
                                                           {"string", filter_string},
                                                           {"title", filter_title},
                                                           {"tojson", filter_tojson},
                                                           {"trim", filter_trim},
                                                           {"unique", filter_unique},
                                                           {"upper", filter_upper}};
  return known;
}

}  // namespace

bool is_filter(std::string_view name) { return filters().contains(name); }

std::string unknown_filter(std::string_view name) {
  return fmt::format("the filter {} is not supported", name);
}

Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments,
                   Work& work) {
  const auto found = filters().find(name);
  if (found == filters().end()) throw Failure(unknown_filter(name));
  work.step();
  return found->second(value, arguments, work);
}

}  // namespace fasa::jinja
