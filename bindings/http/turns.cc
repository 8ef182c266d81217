#include "bindings/http/turns.h"

#include <algorithm>
#include <string>
#include <utility>

namespace fasa::serve {
namespace {

bool is(const Json& message, std::string_view role) { return message.value("role", "") == role; }
bool calls(const Json& message) { return message.contains("tool_calls"); }

void add_text(Json& message, const std::string& text) {
  const std::string content = message.value("content", std::string());
  message["content"] = content + (content.empty() || text.empty() ? "" : "\n\n") + text;
}

Json message_of(const char* role, const std::string& text) {
  return {{"role", role}, {"content", text}};
}

class Turns {
 public:
  void add(Json message) {
    const bool answer = is(message, "assistant"), question = is(message, "user");
    if (!list_.empty() && calls(list_.back()) && !is(message, "tool")) add_results();
    if (question && last_is("tool")) list_.push_back(message_of("assistant", "[interrupted]"));
    if (answer && (list_.empty() || last_is("system"))) {
      list_.push_back(message_of("user", "[continued]"));
    }
    if ((question && last_is("user")) || (answer && last_is("assistant"))) return join(message);
    const bool stray =
        is(message, "tool") && !last_is("tool") && (list_.empty() || !calls(list_.back()));
    if (stray) return add(message_of("user", message.value("content", std::string())));
    list_.push_back(std::move(message));
  }
  Json take() {
    if (!list_.empty() && calls(list_.back())) add_results();
    const auto asks = [](const Json& message) { return is(message, "user"); };
    if (std::none_of(list_.begin(), list_.end(), asks)) {
      list_.push_back(message_of("user", "[continued]"));
    }
    return std::move(list_);
  }

 private:
  bool last_is(std::string_view role) const { return !list_.empty() && is(list_.back(), role); }

  void add_results() {
    const Json open = list_.back()["tool_calls"];
    for (const Json& call : open) {
      Json result = message_of("tool", "[no result]");
      if (call.contains("id")) result["tool_call_id"] = call["id"];
      list_.push_back(std::move(result));
    }
  }
  void join(const Json& message) {
    Json& last = list_.back();
    add_text(last, message.value("content", std::string()));
    for (const auto& [name, value] : message.items()) {
      if (name != "role" && name != "content") last[name] = value;
    }
  }

  Json list_ = Json::array();
};

std::string description_of(const Json& tools) {
  std::string text = "You can call these functions:\n<tools>\n";
  for (const Json& tool : tools) text += tool["function"].dump() + "\n";
  return text +
         "</tools>\nTo call one, answer with a JSON object of its name and arguments:\n"
         "<tool_call>\n{\"name\": \"NAME\", \"arguments\": {...}}\n</tool_call>\n"
         "The result comes in <tool_response> and </tool_response>. If no function helps, answer "
         "in plain text.";
}

void add_paragraph(Json& message, const std::string& text) {
  std::string content = message.value("content", std::string());
  if (!content.empty()) content += "\n";
  message["content"] = content + text;
}

void write_calls(Json& message) {
  for (const Json& call : message["tool_calls"]) {
    const Json& function = call["function"];
    const Json shown = {{"name", function["name"]}, {"arguments", function["arguments"]}};
    add_paragraph(message, "<tool_call>\n" + shown.dump() + "\n</tool_call>");
  }
  message.erase("tool_calls");
}

}  // namespace

Json with_placed_systems(Json messages) {
  Json placed = Json::array();
  std::string waiting;  // text for the next message
  for (Json& message : messages) {
    if (!is(message, "system")) {
      const std::string text = std::exchange(waiting, "");
      if (is(message, "tool")) {
        add_text(message, text);
      } else if (is(message, "user") && !text.empty()) {
        message["content"] = text + "\n\n" + message.value("content", std::string());
      } else if (!text.empty()) {
        placed.push_back(message_of("user", text));
      }
      placed.push_back(std::move(message));
    } else if (placed.empty()) {
      placed.push_back(std::move(message));
    } else if (is(placed.back(), "assistant")) {
      waiting += (waiting.empty() ? "" : "\n\n") + message.value("content", std::string());
    } else {
      add_text(placed.back(), message.value("content", std::string()));
    }
  }
  if (!waiting.empty()) placed.push_back(message_of("user", waiting));
  return placed;
}

Json with_alternating_turns(Json messages) {
  Turns turns;
  for (Json& message : messages) turns.add(std::move(message));
  return turns.take();
}

Json with_generic_tools(Json context) {
  Json messages = Json::array();
  bool results = false;  // the last message consists of results
  for (Json& message : context["messages"]) {
    const bool is_result = message["role"] == "tool";
    if (is_result) {
      if (!results) messages.push_back({{"role", "user"}, {"content", ""}});
      add_paragraph(messages.back(), "<tool_response>\n" + message.value("content", std::string()) +
                                         "\n</tool_response>");
    } else {
      if (message.contains("tool_calls")) write_calls(message);
      messages.push_back(std::move(message));
    }
    results = is_result;
  }
  if (const auto tools = context.find("tools"); tools != context.end() && !tools->is_null()) {
    if (messages.empty() || messages[0]["role"] != "system") {
      messages.insert(messages.begin(), Json{{"role", "system"}, {"content", ""}});
    }
    add_paragraph(messages[0], description_of(*tools));
    context["tools"] = nullptr;
  }
  context["messages"] = std::move(messages);
  return context;
}

}  // namespace fasa::serve
