#include "runtime/text/answer/call_writer.h"

#include "runtime/text/grammar/json_dialect.h"

namespace fasa::text {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) { return dialect_text(json, {}); }

std::string write_tags(const ArgumentTags& tags, const Json& arguments) {
  std::string text;
  for (const auto& [key, value] : arguments.items()) {
    text += tags.key_open + key + tags.key_close + tags.value_open +
            (value.is_string() ? value.get<std::string>() : dump(value)) + tags.value_close;
  }
  return text;
}

std::string write_keywords(const Json& arguments) {
  std::string text;
  for (const auto& [key, value] : arguments.items()) {
    text += (text.empty() ? "" : ", ") + key + "=" + dump(value);
  }
  return "(" + text + ")";
}

std::string write_arguments(const CallFormat& format, const Json& arguments) {
  switch (format.arguments) {
    case ArgumentForm::kTags:
      return write_tags(format.tags, arguments);
    case ArgumentForm::kKeywords:
      return write_keywords(arguments);
    case ArgumentForm::kPairs:
      return dialect_text(arguments, {format.quote});
    default:
      return dump(arguments);
  }
}

std::string write_call(const CallFormat& format, const WrittenCall& call, size_t index) {
  std::string text = format.alone && index == 0 ? "" : format.open;
  if (format.name_member.empty()) {
    text += format.name_open + call.name + format.name_close;
    return text + write_arguments(format, call.arguments) + format.close;
  }
  text += "{";
  if (!format.id_member.empty()) {
    text += dump(format.id_member) + ": " + dump(std::to_string(index)) + ", ";
  }
  return text + dump(format.name_member) + ": " + dump(call.name) + ", " +
         dump(format.arguments_member) + ": " + dump(call.arguments) + "}" + format.close;
}

// The header of a call's part, in a format with channels.
std::string channel_header(const ChannelFormat& channels, const std::string& name) {
  return channels.open + channels.call + " " + channels.recipient + name + " " +
         channels.constraint + channels.message;
}

}  // namespace

std::string write_calls(const AnswerFormat& format, std::span<const WrittenCall> calls) {
  if (calls.empty()) return "";
  if (!format.channels.open.empty()) {
    return channel_header(format.channels, calls[0].name) + dump(calls[0].arguments) +
           format.calls.close;
  }
  std::string text = format.calls.section_open + (format.calls.list ? "[" : "");
  for (size_t i = 0; i < calls.size(); ++i) {
    text += (i == 0 ? "" : format.calls.between) + write_call(format.calls, calls[i], i);
  }
  return text + (format.calls.list ? "]" : "") + format.calls.section_close;
}

}  // namespace fasa::text
