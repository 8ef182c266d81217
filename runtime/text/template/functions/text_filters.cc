// Filters that return texts.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/text/template/attributes.h"
#include "runtime/text/template/functions/filter_functions.h"
#include "runtime/text/template/functions/text_edit.h"
#include "runtime/text/template/functions/unicode.h"
#include "runtime/text/template/operators.h"
#include "runtime/text/template/python_text.h"

namespace fasa::jinja {
namespace {

bool is_markup(const Value& value) { return value.is_text() && value.text()->markup; }

template <MarkedText (*kChange)(const MarkedText&)>
Value changed(std::string_view name, const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound(name, arguments, {});
  return work.text(kChange(str_of(value, work)), is_markup(value));
}

// A word begins after white space, a hyphen or an opening bracket.
bool separates_words(char32_t character) {
  return is_space(character) || character == '-' || character == '(' || character == '{' ||
         character == '[' || character == '<';
}

MarkedText titled(const MarkedText& text) {
  MarkedText result;
  const std::string& bytes = text.bytes();
  for (size_t begin = 0; begin < bytes.size();) {
    const bool separator = separates_words(character_at(bytes, begin).code);
    const size_t first = begin + character_at(bytes, begin).size;
    size_t end = first;
    while (end < bytes.size() && separates_words(character_at(bytes, end).code) == separator) {
      end += character_at(bytes, end).size;
    }
    result.append(upper(text.part(begin, first)));
    result.append(lower(text.part(first, end)));
    begin = end;
  }
  return result;
}

// json.dumps takes a number of blanks, or the indentation itself.
std::optional<std::string> json_indent(const Value& value) {
  constexpr int64_t kWidest = 64;
  if (value.is_none() || value.is_undefined()) return std::nullopt;
  if (value.is_text()) return value.text()->text.bytes();
  const auto width = value.integer();
  if (!width || *width > kWidest) {
    throw Failure(
        fmt::format("tojson: indent is invalid; allowed: a number up to {}, or a string", kWidest));
  }
  return std::string(static_cast<size_t>(std::max<int64_t>(*width, 0)), ' ');
}

}  // namespace

Value filter_lower(const Value& value, const Arguments& arguments, Work& work) {
  return changed<lower>("lower", value, arguments, work);
}
Value filter_upper(const Value& value, const Arguments& arguments, Work& work) {
  return changed<upper>("upper", value, arguments, work);
}
Value filter_capitalize(const Value& value, const Arguments& arguments, Work& work) {
  return changed<capitalize>("capitalize", value, arguments, work);
}
Value filter_title(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("title", arguments, {});
  return work.text(titled(str_of(value, work)));
}

Value filter_string(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("string", arguments, {});
  return value.is_text() ? value : work.text(str_of(value, work));
}

Value filter_safe(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("safe", arguments, {});
  return work.text(str_of(value, work), true);
}

Value filter_trim(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("trim", arguments, {"chars"});
  const MarkedText text = str_of(value, work);
  std::string_view characters;
  if (!bound.absent(0)) characters = bound.text(0).text.bytes();
  const auto [begin, end] = strip(text.bytes(), bound.absent(0) ? nullptr : &characters, {});
  return work.text(text.part(begin, end), is_markup(value));
}

Value filter_replace(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("replace", arguments, {"old", "new", "count"});
  const MarkedText from = str_of(bound.at(0), work);
  const int64_t most = bound.absent(2) ? -1 : bound.integer_or(2, -1);
  return work.text(
      replaced(str_of(value, work), from.bytes(), str_of(bound.at(1), work), most, work));
}

Value filter_join(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("join", arguments, {"d", "attribute"});
  const MarkedText between = bound.has(0) ? str_of(bound.at(0), work) : MarkedText();
  MarkedText joined;
  bool first = true;
  for (const Value& item : items_of(value, work)) {
    if (!std::exchange(first, false)) joined.append(between);
    joined.append(str_of(bound.absent(1) ? item : path_of(item, bound.at(1), work), work));
    work.check_size(joined.size());
  }
  return work.text(std::move(joined));
}

Value filter_indent(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  if (!value.is_text()) {
    throw Failure(value.is_undefined()
                      ? value.why_undefined()
                      : fmt::format("indent does not support a {}", value.type_name()));
  }
  constexpr int64_t kWidest = 1024;
  const bool by_text = bound.has(0) && bound.at(0).is_text();
  const int64_t width = by_text ? 0 : bound.integer_or(0, 4);
  if (width > kWidest) throw Failure(fmt::format("indent: the width is above {}", kWidest));
  const MarkedText margin =
      by_text ? bound.text(0).text
              : MarkedText(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '),
                           Origin::kTemplate);
  const bool first = bound.truth_or(1, false), blank = bound.truth_or(2, false);
  MarkedText text = value.text()->text;
  text.append("\n", Origin::kTemplate);  // after the last line too
  MarkedText result;
  bool begins = true;
  for (const auto& [begin, end] : split_lines(text.bytes())) {
    if (!begins) result.append("\n", Origin::kTemplate);
    if (begins ? first : (begin < end || blank)) result.append(margin);
    result.append(text, begin, end);
    work.check_size(result.size());
    begins = false;
  }
  return work.text(std::move(result), is_markup(value));
}

Value filter_tojson(const Value& value, const Arguments& arguments, Work& work) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = bound.truth_or(0, false);
  style.indent = json_indent(bound.or_else(1, Value::none()));
  style.sort_keys = bound.truth_or(3, false);
  if (style.indent) style.item_separator.resize(1);  // no blank after the comma
  if (!bound.absent(2)) {
    const List* pair = bound.at(2).list();
    if (pair == nullptr || !pair->has_places() || pair->items().size() != 2 ||
        !pair->items()[0].is_text() || !pair->items()[1].is_text()) {
      throw Failure("tojson: separators are invalid; allowed: a pair of strings");
    }
    style.item_separator = pair->items()[0].text()->text.bytes();
    style.key_separator = pair->items()[1].text()->text.bytes();
  }
  return work.text(json_of(value, style, work));
}

}  // namespace fasa::jinja
