// "response_template" of tokenizer_config.json: marks and contents of an answer's fields.
#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "runtime/text/answer/format_choice.h"

namespace fasa::text {
namespace {

using Json = nlohmann::ordered_json;

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

// The literal marks of a field's end; of a pattern what it begins with.
std::vector<std::string> anchors(const Json& field, const std::string& key) {
  std::vector<std::string> texts;
  if (const Json* const literal = member(field, key.c_str())) {
    for (const Json& one : literal->is_array() ? *literal : Json::array({*literal})) {
      if (one.is_string()) texts.push_back(one.get<std::string>());
    }
  }
  const Json* const pattern = member(field, (key + "_pattern").c_str());
  if (pattern == nullptr || !pattern->is_string()) return texts;
  const auto source = pattern->get<std::string>();
  std::string text;
  for (size_t at = 0; at < source.size(); ++at) {
    const bool escaped = source[at] == '\\';
    if (escaped && ++at == source.size()) break;
    const bool letter = escaped && std::isalnum(static_cast<unsigned char>(source[at])) != 0;
    if (letter ||
        (!escaped && std::string_view("([{?*+.^$").find(source[at]) != std::string_view::npos)) {
      break;
    }
    text += source[at];
  }
  if (!without_blanks(text).empty()) texts.push_back(text);
  return texts;
}

ArgumentForm form_of(const Json& field) {
  const Json* const content = member(field, "content");
  if (content != nullptr && *content == "xml-inline") return ArgumentForm::kTags;
  const Json* const arguments = member(field, "content_args");
  const bool pairs = arguments != nullptr && (member(*arguments, "unquoted_keys") != nullptr ||
                                              member(*arguments, "string_delims") != nullptr);
  return pairs ? ArgumentForm::kPairs : ArgumentForm::kJson;
}

bool is_among(const std::vector<std::string>& texts, const std::string& mark) {
  return std::any_of(texts.begin(), texts.end(), [&](const std::string& text) {
    return !mark.empty() && (without_blanks(text).starts_with(without_blanks(mark)));
  });
}

// The JSON object of calls between two marks that no row has.
std::optional<AnswerFormat> own_format(const std::vector<std::string>& opens, const Json& field) {
  const auto closes = anchors(field, "close");
  if (opens.size() != 1 || closes.size() != 1 || form_of(field) != ArgumentForm::kJson) {
    return std::nullopt;
  }
  AnswerFormat format = answer_formats()[0];
  format.name = "response-template";
  format.calls.open = opens[0] + "\n";
  format.calls.close = "\n" + closes[0];
  return format;
}

}  // namespace

std::optional<AnswerFormat> format_of_response_template(const std::string& json) {
  const Json document = Json::parse(json, nullptr, false);
  const Json* const fields = member(document, "fields");
  if (fields == nullptr) return std::nullopt;
  const Json* const calls = member(*fields, "tool_calls");
  if (calls == nullptr) return std::nullopt;
  const std::vector<std::string> opens = anchors(*calls, "open");
  const std::vector<std::string> closes = anchors(*calls, "close");
  std::optional<AnswerFormat> format;
  for (const AnswerFormat& row : answer_formats()) {
    const std::string& close =
        row.calls.section_close.empty() ? row.calls.close : row.calls.section_close;
    const bool opened = is_among(opens, row.call_mark()) && row.calls.arguments == form_of(*calls);
    const bool closed = std::any_of(closes.begin(), closes.end(), [&](const std::string& text) {
      return without_blanks(close).ends_with(without_blanks(text));
    });
    if (!opened || (!closes.empty() && !closed)) continue;
    format = row;
    break;
  }
  if (!format) format = own_format(opens, *calls);
  const Json* const thinking = member(*fields, "thinking");
  if (!format || thinking == nullptr) return format;
  const auto open = anchors(*thinking, "open"), close = anchors(*thinking, "close");
  if (open.empty() || close.empty()) return format;
  std::erase_if(format->thoughts, [&](const Region& one) { return one.open == open[0]; });
  format->thoughts.insert(format->thoughts.begin(), {open[0], close[0]});
  return format;
}

}  // namespace fasa::text
