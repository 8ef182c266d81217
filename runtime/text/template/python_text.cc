#include "runtime/text/template/python_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <string_view>

#include "runtime/base/utf8.h"
#include "runtime/text/template/unicode.h"

namespace fasa::jinja {
namespace {

// Builds repr(). The depth of values is at most Limits::depth.
class ReprWriter {
 public:
  explicit ReprWriter(Work& work) : work_(work) {}

  void write(const Value& value) {
    work_.step();
    if (const TextValue* text = value.text()) {
      write_text(*text);
    } else if (const List* list = value.list(); list != nullptr && has_text(*list)) {
      write_list(*list);
    } else if (const Dict* dict = value.dict()) {
      write_dict(*dict);
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

  static bool has_text(const List& list) {
    return list.kind() == ListKind::kList || list.kind() == ListKind::kTuple;
  }

  static std::string scalar(const Value& value) {
    if (value.is_none()) return "None";
    if (const bool* flag = value.boolean()) return *flag ? "True" : "False";
    if (const auto integer = value.integer()) return std::to_string(*integer);
    if (const LargeInteger* large = value.large()) return large->digits;
    if (const auto number = value.number()) return repr_of(*number);
    if (value.is_undefined()) return "Undefined";
    throw Failure(fmt::format("a {} cannot be converted to a string", value.type_name()));
  }

  void write_text(const TextValue& value) {
    if (value.markup) put("Markup(");
    const std::string& bytes = value.text.bytes();
    work_.step_bytes(bytes.size());
    const bool single = bytes.find('\'') == std::string::npos;
    const char quote = single || bytes.find('"') != std::string::npos ? '\'' : '"';
    put({&quote, 1});
    size_t at = 0;
    std::string escaped;
    for (const MarkedText::Run& run : value.text.runs()) {
      escaped.clear();
      for (; at < run.end; at += character_at(bytes, at).size) {
        append_escaped(&escaped, character_at(bytes, at).code, quote);
      }
      out_.append(escaped, run.origin);
    }
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

  void write_list(const List& list) {
    const bool tuple = list.kind() == ListKind::kTuple;
    put(tuple ? "(" : "[");
    for (size_t i = 0; i < list.items().size(); ++i) {
      if (i > 0) put(", ");
      write(list.items()[i]);
    }
    if (tuple && list.items().size() == 1) put(",");
    put(tuple ? ")" : "]");
  }

  void write_dict(const Dict& dict) {
    put("{");
    for (size_t i = 0; i < dict.entries().size(); ++i) {
      if (i > 0) put(", ");
      write(dict.entries()[i].first);
      put(": ");
      write(dict.entries()[i].second);
    }
    put("}");
  }

  Work& work_;
  MarkedText out_;
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
  ReprWriter writer(work);
  writer.write(value);
  return writer.take();
}

std::string shown(const Value& value, Work& work) {
  if (value.is_undefined()) return "undefined";
  constexpr size_t kLongest = 60;
  std::string text;
  try {
    ReprWriter writer(work);
    writer.write(value);
    text = writer.take().bytes();
  } catch (const Failure&) {
    return std::string(value.type_name());
  }
  return text.size() <= kLongest ? text : std::string(cut_text(text, kLongest)) + "...";
}

}  // namespace fasa::jinja
