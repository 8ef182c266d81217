#include "bindings/http/api/chat_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "bindings/http/api/chat_history.h"
#include "bindings/http/api/content_text.h"
#include "bindings/http/api_error.h"

namespace fasa::serve {
namespace {

constexpr size_t kMaxMessages = 10'000;
constexpr std::string_view kReasoning[] = {"reasoning", "thinking", "reasoning_content"};
// Fields that are read, or that templates do not know. Others reach the template as they are.
constexpr std::string_view kOwnFields[] = {
    "role",     "content",           "tool_calls",        "tool_name",    "reasoning",
    "thinking", "reasoning_content", "function_call",     "refusal",      "audio",
    "images",   "annotations",       "reasoning_details", "cache_control"};

template <class Names>
bool is_among(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool is_empty(const Json& value) {
  return value.is_null() || (value.is_structured() && value.empty());
}

// {"id", "function": {"name", "arguments"}}, or {"custom": {"name", "input"}}.
Json read_call(const Json& json, const std::string& path) {
  const RequestFields call(json, path);
  const bool custom = call.string("type") == "custom" || call.find("custom") != nullptr;
  const char* const inner = custom ? "custom" : "function";
  const auto function = call.object(inner);
  if (!function) throw ApiError::bad_field(call.path_of(inner), "missing; allowed: an object");
  const auto name = function->string("name");
  if (!name) throw ApiError::bad_field(function->path_of("name"), "missing; allowed: a string");
  Json arguments = member_of(function->json(), "arguments");
  if (custom) arguments = {{"input", member_of(function->json(), "input")}};
  Json read = {{"type", "function"},
               {"function", {{"name", *name}, {"arguments", call_arguments(arguments)}}}};
  const Json& id = member_of(json, "id");
  if (id.is_string()) read["id"] = id;
  return read;
}

void read_calls(const RequestFields& fields, Json& read) {
  const Json& calls = member_of(fields.json(), "tool_calls");
  const std::string path = fields.path_of("tool_calls");
  if (!calls.is_null() && !calls.is_array()) {
    throw ApiError::bad_field(path, kind_of(calls) + "; allowed: a list of calls");
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    read["tool_calls"].push_back(read_call(calls[i], fmt::format("{}[{}]", path, i)));
  }
  // The name before tools had one.
  const Json& call = member_of(fields.json(), "function_call");
  if (calls.empty() && call.is_object()) {
    read["tool_calls"].push_back(read_call({{"function", call}}, fields.path_of("function_call")));
  }
}

void read_reasoning(const RequestFields& fields, Json& read) {
  std::string text = thinking_text(member_of(fields.json(), "content"));
  for (const std::string_view name : kReasoning) {
    const Json& reasoning = member_of(fields.json(), std::string(name).c_str());
    if (reasoning.is_string()) text = reasoning.get<std::string>();
  }
  if (!text.empty()) set_reasoning(read, text);
}

// Ollama's images beside the text.
std::string images_note(const RequestFields& fields, OtherParts others) {
  const Json& images = member_of(fields.json(), "images");
  if (!images.is_array() || images.empty()) return "";
  if (others == OtherParts::kRefused) {
    fields.refuse("images", {}, "this server does not read media; omit the field");
  }
  return "[image omitted]";
}

// `others`: of the user's message.
Json read_message(const RequestFields& fields, const std::string& role, OtherParts others) {
  Json read = {{"role", role}, {"content", ""}};
  const Json& content = member_of(fields.json(), "content");
  if (role != "user") others = OtherParts::kNoted;
  if (others == OtherParts::kRefused && content.is_null()) {
    throw ApiError::bad_field(fields.path_of("content"),
                              "missing; allowed: a string or a list of parts");
  }
  std::string text = content_text(content, fields.path_of("content"), others);
  const std::string images = images_note(fields, others);
  if (!images.empty()) text += (text.empty() ? "" : "\n") + images;
  if (role == "assistant") {
    const Json& refusal = member_of(fields.json(), "refusal");
    if (text.empty() && refusal.is_string()) text = refusal.get<std::string>();
    read_calls(fields, read);
    read_reasoning(fields, read);
  }
  read["content"] = text;
  if (const Json& name = member_of(fields.json(), "tool_name"); name.is_string())
    read["name"] = name;
  for (const auto& [name, value] : fields.json().items()) {
    const bool fits = value.is_string() || (name != "name" && name != "tool_call_id");
    if (fits && !is_empty(value) && !is_among(kOwnFields, name)) read[name] = value;
  }
  return read;
}

// Templates know low, medium and high.
std::string known_effort(const std::string& effort) {
  if (effort == "minimal") return "low";
  return effort == "max" || effort == "xhigh" ? "high" : effort;
}

void set(Json& context, const char* name, Json value) {
  if (!context.contains(name)) context[name] = std::move(value);
}

}  // namespace

const Json& require_messages(const RequestFields& fields) {
  const Json* const messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty() ||
      messages->size() > kMaxMessages) {
    throw ApiError::bad_field(
        "messages",
        fmt::format("{}; allowed: a list of 1 to {} messages",
                    messages == nullptr ? "missing" : kind_of(*messages), kMaxMessages));
  }
  return *messages;
}

Json read_chat_messages(const RequestFields& fields) {
  constexpr std::string_view kRoles[] = {"system", "user", "assistant", "tool"};
  const Json& messages = require_messages(fields);
  const auto newest = newest_user_message(messages);
  ChatHistory history;
  for (size_t i = 0; i < messages.size(); ++i) {
    const RequestFields message(messages[i], fmt::format("messages[{}]", i));
    std::string role = message.string("role").value_or("");
    if (role == "developer") role = "system";  // templates know no other name for it
    if (role == "function") role = "tool";     // the name before tools had one
    if (is_among(kRoles, role)) {
      history.add(
          read_message(message, role, i == newest ? OtherParts::kRefused : OtherParts::kNoted));
    } else if (i + 1 < messages.size()) {
      log_skipped(role);
    } else {
      throw ApiError::bad_field(
          message.path_of("role"),
          fmt::format("\"{}\"; allowed: system, developer, user, assistant, tool",
                      role.substr(0, 40)));
    }
  }
  return history.take();
}

void set_thinking(Json& context, const Json& effort) {
  bool thinks = true;
  if (effort.is_boolean()) {
    thinks = effort.get<bool>();
  } else if (effort.is_string() && !effort.get<std::string>().empty()) {
    thinks = effort != "none" && effort != "disabled";
    set(context, "reasoning_effort", thinks ? known_effort(effort.get<std::string>()) : "none");
  } else {
    return;
  }
  for (const char* const name : {"enable_thinking", "thinking"}) set(context, name, thinks);
}

void set_template_variables(Json& context, const RequestFields& fields) {
  const auto extra = fields.object("chat_template_kwargs");
  if (!extra) return;
  for (const auto& [name, value] : extra->json().items()) {
    if (name != "messages" && name != "tools") context[name] = value;
  }
}

}  // namespace fasa::serve
