#include "runtime/text/template/python_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "runtime/base/utf8.h"
#include "runtime/text/template/functions/unicode.h"
#include "runtime/text/template/operators.h"

namespace fasa::jinja {
namespace {

struct ScalarNames {
  const char *none, *yes, *no, *nan, *infinity;
};

// What repr() and json.dumps() share. The depth of values is at most Limits::depth.
class ValueWriter {
 public:
  ValueWriter(const ScalarNames& names, JsonStyle style, Work& work)
      : names_(names), style_(std::move(style)), work_(work) {}
  virtual ~ValueWriter() = default;

  MarkedText text_of(const Value& value) {
    write(value, 0);
    return std::move(out_);
  }

 protected:
  // `level`: number of enclosing brackets.
  void write(const Value& value, int level) {
    work_.step();
    const List* const list = value.list();
    if (const TextValue* text = value.text()) {
      write_text(*text);
    } else if (list != nullptr &&
               (list->kind() == ListKind::kList || list->kind() == ListKind::kTuple)) {
      write_list(*list, level);
    } else if (const Dict* dict = value.dict()) {
      write_dict(*dict, level);
    } else {
      put(scalar(value));
    }
  }

  void put(std::string_view text) {
    out_.append(text, Origin::kTemplate);
    work_.check_size(out_.size());
  }

  std::string scalar(const Value& value) const {
    if (value.is_none()) return names_.none;
    if (const bool* flag = value.boolean()) return *flag ? names_.yes : names_.no;
    if (const auto integer = value.integer()) return std::to_string(*integer);
    if (const LargeInteger* large = value.large()) return large->digits;
    if (const auto number = value.number()) {
      if (std::isnan(*number)) return names_.nan;
      if (std::isinf(*number)) return (*number < 0 ? "-" : "") + std::string(names_.infinity);
      return repr_of(*number);
    }
    return other(value);
  }

  // Appends the text's characters, each as append_escaped(out, character) writes it.
  template <typename AppendEscaped>
  void put_escaped(const MarkedText& text, const AppendEscaped& append_escaped) {
    size_t at = 0;
    std::string escaped;
    for (const MarkedText::Run& run : text.runs()) {
      escaped.clear();
      for (; at < run.end; at += character_at(text.bytes(), at).size) {
        append_escaped(&escaped, character_at(text.bytes(), at).code);
      }
      out_.append(escaped, run.origin);
    }
  }

  Work& work() { return work_; }

 private:
  virtual void write_text(const TextValue& value) = 0;
  virtual void write_key(const Value& key, int level) = 0;
  virtual std::string other(const Value& value) const = 0;
  virtual bool has_tuples() const = 0;

  void new_line(int level) {
    if (!style_.indent) return;
    put("\n");
    for (int i = 0; i < level; ++i) put(*style_.indent);
  }

  void write_list(const List& list, int level) {
    const bool tuple = list.kind() == ListKind::kTuple && has_tuples();
    if (list.items().empty()) return put(tuple ? "()" : "[]");
    put(tuple ? "(" : "[");
    for (size_t i = 0; i < list.items().size(); ++i) {
      if (i > 0) put(style_.item_separator);
      new_line(level + 1);
      write(list.items()[i], level + 1);
    }
    if (tuple && list.items().size() == 1) put(",");
    new_line(level);
    put(tuple ? ")" : "]");
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
      write_key(entries[i]->first, level + 1);
      put(style_.key_separator);
      write(entries[i]->second, level + 1);
    }
    new_line(level);
    put("}");
  }

  const ScalarNames& names_;
  JsonStyle style_;
  Work& work_;
  MarkedText out_;
};

constexpr ScalarNames kPythonNames{"None", "True", "False", "nan", "inf"};
constexpr ScalarNames kJsonNames{"null", "true", "false", "NaN", "Infinity"};

class ReprWriter final : public ValueWriter {
 public:
  explicit ReprWriter(Work& work) : ValueWriter(kPythonNames, {}, work) {}

 private:
  bool has_tuples() const override { return true; }
  void write_key(const Value& key, int level) override { write(key, level); }

  std::string other(const Value& value) const override {
    if (value.is_undefined()) return "Undefined";
    throw Failure(fmt::format("a {} cannot be converted to a string", value.type_name()));
  }

  void write_text(const TextValue& value) override {
    if (value.markup) put("Markup(");
    const std::string& bytes = value.text.bytes();
    work().step_bytes(bytes.size());
    const bool single = bytes.find('\'') == std::string::npos;
    const char quote = single || bytes.find('"') != std::string::npos ? '\'' : '"';
    put({&quote, 1});
    put_escaped(value.text, [&](std::string* out, char32_t character) {
      append_escaped(out, character, quote);
    });
    put({&quote, 1});
    if (value.markup) put(")");
  }

  static void append_escaped(std::string* out, char32_t character, char quote) {
    const auto code = static_cast<uint32_t>(character);
    if (character == '\n') {
      *out += "\\n";
    } else if (character == '\r') {
      *out += "\\r";
    } else if (character == '\t') {
      *out += "\\t";
    } else if (character == '\\' || code == static_cast<unsigned char>(quote)) {
      *out += {'\\', static_cast<char>(character)};
    } else if (is_printable(character)) {
      append_utf8(*out, character);
    } else {
      *out += code < 0x100     ? fmt::format("\\x{:02x}", code)
              : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                               : fmt::format("\\U{:08x}", code);
    }
  }
};

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

class JsonWriter final : public ValueWriter {
 public:
  JsonWriter(const JsonStyle& style, Work& work)
      : ValueWriter(kJsonNames, style, work), ascii_(style.ascii) {}

 private:
  bool has_tuples() const override { return false; }

  std::string other(const Value& value) const override {
    throw Failure(fmt::format("tojson: a {} cannot be written as JSON", value.type_name()));
  }

  void write_text(const TextValue& value) override {
    work().step_bytes(value.text.size());
    put("\"");
    put_escaped(value.text, [&](std::string* out, char32_t character) {
      append_json_escaped(out, character, ascii_);
    });
    put("\"");
  }

  void write_key(const Value& key, int) override {
    if (const TextValue* text = key.text()) return write_text(*text);
    put("\"");
    put(scalar(key));
    put("\"");
  }

  bool ascii_;
};

}  // namespace

std::string repr_of(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  // The shortest digits that parse to the same number; Python's rule decides between the forms.
  char digits[40];
  const auto scientific =
      std::to_chars(digits, digits + sizeof digits, number, std::chars_format::scientific);
  const std::string_view text(digits, static_cast<size_t>(scientific.ptr - digits));
  const size_t e = text.find('e');
  const int exponent = std::stoi(std::string(text.substr(e + 1)));
  if (exponent < -4 || exponent >= 16) return std::string(text);
  char plain[40];
  const auto fixed = std::to_chars(plain, plain + sizeof plain, number, std::chars_format::fixed);
  std::string result(plain, static_cast<size_t>(fixed.ptr - plain));
  if (result.find('.') == std::string::npos) result += ".0";
  return result;
}

MarkedText str_of(const Value& value, Work& work) {
  if (const TextValue* text = value.text()) {
    work.step_bytes(text->text.size());
    return text->text;
  }
  if (value.is_undefined()) return {};
  return ReprWriter(work).text_of(value);
}

std::string shown(const Value& value, Work& work) {
  if (value.is_undefined()) return "undefined";
  constexpr size_t kLongest = 60;
  std::string text;
  try {
    text = ReprWriter(work).text_of(value).bytes();
  } catch (const Failure&) {
    return std::string(value.type_name());
  }
  return text.size() <= kLongest ? text : std::string(cut_text(text, kLongest)) + "...";
}

MarkedText json_of(const Value& value, const JsonStyle& style, Work& work) {
  return JsonWriter(style, work).text_of(value);
}

}  // namespace fasa::jinja
