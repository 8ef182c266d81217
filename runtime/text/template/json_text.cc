// json.dumps() of a value.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "runtime/base/utf8.h"
#include "runtime/text/template/operators.h"
#include "runtime/text/template/python_text.h"
#include "runtime/text/template/unicode.h"

namespace fasa::jinja {
namespace {

void append_unit(std::string* out, uint32_t unit) { *out += fmt::format("\\u{:04x}", unit); }

void append_json_escaped(std::string* out, char32_t character, bool ascii) {
  static constexpr std::pair<char32_t, std::string_view> kShort[] = {
      {'"', "\\\""}, {'\\', "\\\\"}, {'\n', "\\n"}, {'\r', "\\r"},
      {'\t', "\\t"}, {'\f', "\\f"},  {'\b', "\\b"}};
  for (const auto& [from, to] : kShort) {
    if (from != character) continue;
    *out += to;
    return;
  }
  const auto code = static_cast<uint32_t>(character);
  if (code >= 0x20 && (code < 0x7f || !ascii)) {
    append_utf8(*out, character);
  } else if (code < 0x10000) {
    append_unit(out, code);
  } else {
    append_unit(out, 0xd800 + ((code - 0x10000) >> 10));
    append_unit(out, 0xdc00 + ((code - 0x10000) & 0x3ff));
  }
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Work& work) : style_(style), work_(work) {}

  // `level`: number of enclosing brackets, at most Limits::depth.
  void write(const Value& value, int level) {
    work_.step();
    if (const TextValue* text = value.text()) {
      write_text(text->text);
    } else if (const List* list = value.list(); list != nullptr && is_json(*list)) {
      write_list(*list, level);
    } else if (const Dict* dict = value.dict()) {
      write_dict(*dict, level);
    } else {
      put(scalar(value));
    }
  }
  MarkedText take() { return std::move(out_); }

 private:
  void put(std::string_view text) {
    out_.append(text, Origin::kTemplate);
    work_.check_size(out_.size());
  }

  static bool is_json(const List& list) {
    return list.kind() == ListKind::kList || list.kind() == ListKind::kTuple;
  }

  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* flag = value.boolean()) return *flag ? "true" : "false";
    if (const auto integer = value.integer()) return std::to_string(*integer);
    if (const LargeInteger* large = value.large()) return large->digits;
    if (const auto number = value.number()) {
      if (std::isnan(*number)) return "NaN";
      if (std::isinf(*number)) return *number < 0 ? "-Infinity" : "Infinity";
      return repr_of(*number);
    }
    throw Failure(fmt::format("tojson: a {} cannot be written as JSON", value.type_name()));
  }

  void write_text(const MarkedText& text) {
    work_.step_bytes(text.size());
    put("\"");
    size_t at = 0;
    std::string escaped;
    for (const MarkedText::Run& run : text.runs()) {
      escaped.clear();
      for (; at < run.end; at += character_at(text.bytes(), at).size) {
        append_json_escaped(&escaped, character_at(text.bytes(), at).code, style_.ascii);
      }
      out_.append(escaped, run.origin);
    }
    put("\"");
  }

  void new_line(int level) {
    if (!style_.indent) return;
    put("\n");
    for (int i = 0; i < level; ++i) put(*style_.indent);
  }

  void write_list(const List& list, int level) {
    if (list.items().empty()) return put("[]");
    put("[");
    for (size_t i = 0; i < list.items().size(); ++i) {
      if (i > 0) put(style_.item_separator);
      new_line(level + 1);
      write(list.items()[i], level + 1);
    }
    new_line(level);
    put("]");
  }

  void write_dict(const Dict& dict, int level) {
    if (dict.entries().empty()) return put("{}");
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return less(a->first, b->first, work_);
      });
    }
    put("{");
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) put(style_.item_separator);
      new_line(level + 1);
      write_key(entries[i]->first);
      put(style_.key_separator);
      write(entries[i]->second, level + 1);
    }
    new_line(level);
    put("}");
  }

  void write_key(const Value& key) {
    if (const TextValue* text = key.text()) return write_text(text->text);
    put("\"");
    put(scalar(key));
    put("\"");
  }

  const JsonStyle& style_;
  Work& work_;
  MarkedText out_;
};

}  // namespace

MarkedText json_of(const Value& value, const JsonStyle& style, Work& work) {
  JsonWriter writer(style, work);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace fasa::jinja
