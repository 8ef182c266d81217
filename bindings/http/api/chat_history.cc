#include "bindings/http/api/chat_history.h"

#include <map>
#include <utility>
#include <vector>

namespace fasa::serve {
namespace {

// A call that awaits its result.
struct OpenCall {
  std::string id, name;
};

// Clients name the call of a result, templates show the function's name.
void name_results(Json& messages) {
  std::map<std::string, std::string> names;  // by id
  std::vector<OpenCall> open;                // of the last message with calls, in order
  for (Json& message : messages) {
    if (message.contains("tool_calls")) {
      open.clear();
      for (const Json& call : message["tool_calls"]) {
        open.push_back({call.value("id", ""), call["function"].value("name", "")});
        if (!open.back().id.empty()) names[open.back().id] = open.back().name;
      }
    }
    if (message["role"] != "tool") continue;
    const std::string id = message.value("tool_call_id", "");
    auto call = open.begin();
    while (call != open.end() && !id.empty() && call->id != id) ++call;
    if (!message.contains("name")) {
      if (const auto known = names.find(id); known != names.end()) {
        message["name"] = known->second;
      } else if (call != open.end() && id.empty()) {
        message["name"] = call->name;
      }
    }
    if (call != open.end()) open.erase(call);
  }
}

}  // namespace

void set_reasoning(Json& message, const std::string& text) {
  message["reasoning_content"] = message["thinking"] = text;
}

Json call_arguments(const Json& arguments) {
  if (arguments.is_object()) return arguments;
  if (arguments.is_null()) return Json::object();
  if (!arguments.is_string()) return arguments.empty() ? Json::object() : Json(arguments.dump());
  const auto text = arguments.get<std::string>();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Json::object();
  const auto parsed = parse_arguments(text);
  if (parsed && parsed->is_object()) return *parsed;
  if (parsed && parsed->is_null()) return Json::object();
  return arguments;  // of an answer that was cut off
}

void ChatHistory::add(Json message) {
  messages_.push_back(std::move(message));
  settle_thoughts();
}

void ChatHistory::settle_thoughts() {
  const std::string text = std::exchange(thoughts_, "");
  Json& message = messages_.back();
  if (text.empty() || message["role"] != "assistant") return;
  set_reasoning(message, message.value("reasoning_content", std::string()) + text);
}

Json& ChatHistory::assistant() {
  if (messages_.empty() || messages_.back()["role"] != "assistant") add("assistant", "");
  settle_thoughts();
  return messages_.back();
}

void ChatHistory::say(const std::string& text) {
  Json& message = assistant();
  message["content"] = message["content"].get<std::string>() + text;
}

void ChatHistory::call(const std::string& id, const std::string& name, const Json& arguments) {
  Json& message = assistant();
  if (!message.contains("tool_calls")) message["tool_calls"] = Json::array();
  message["tool_calls"].push_back(
      {{"id", id},
       {"type", "function"},
       {"function", {{"name", name}, {"arguments", call_arguments(arguments)}}}});
}

void ChatHistory::result(const std::string& id, const std::string& name, const std::string& text) {
  add("tool", text);
  if (!id.empty()) messages_.back()["tool_call_id"] = id;
  if (!name.empty()) messages_.back()["name"] = name;
}

Json ChatHistory::take() {
  name_results(messages_);
  return std::move(messages_);
}

}  // namespace fasa::serve
