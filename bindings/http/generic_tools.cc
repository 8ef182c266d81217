#include "bindings/http/generic_tools.h"

#include <string>
#include <utility>

namespace fasa::serve {
namespace {

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
