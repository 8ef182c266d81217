#include "runtime/text/answer/history_form.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace fasa::text {
namespace {

using Json = nlohmann::ordered_json;

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool has_calls(const Json& message) {
  const auto calls = message.find("tool_calls");
  return calls != message.end() && calls->is_array() && !calls->empty();
}

// Equal ids give equal letters, so that a conversation's prompt stays the same.
std::string nine_letters(const std::string& id) {
  constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  constexpr size_t kSize = 9;
  if (id.size() == kSize && id.find_first_not_of(kLetters) == std::string::npos) return id;
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char byte : id) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  std::string letters;
  for (size_t i = 0; i < kSize; ++i) {
    letters += kLetters[hash % kLetters.size()];
    hash /= kLetters.size();
  }
  return letters;
}

class Messages {
 public:
  explicit Messages(const HistoryForm& form) : form_(form) {}

  void add(Json message) {
    const std::string role = text_at(message, "role");
    if (role == "assistant") return add_answer(std::move(message));
    if (role == "tool") name_result(message);
    list_.push_back(std::move(message));
  }
  Json take() { return std::move(list_); }

 private:
  void name_result(Json& message) {
    const std::string id = text_at(message, "tool_call_id");
    if (const auto called = names_.find(id); called != names_.end()) {
      if (text_at(message, "name").empty()) message["name"] = called->second;
    }
    if (form_.nine_letter_ids && message.contains("tool_call_id")) {
      message["tool_call_id"] = nine_letters(id);
    }
  }
  void add_answer(Json message) {
    if (!has_calls(message)) message.erase("tool_calls");
    spell_reasoning(message);
    if (message.contains("tool_calls")) {
      for (Json& call : message["tool_calls"]) spell_call(call);
      if (form_.null_content) {
        if (!text_at(message, "content").empty()) {
          list_.push_back({{"role", "assistant"}, {"content", message["content"]}});
        }
        message["content"] = nullptr;
      }
    }
    list_.push_back(std::move(message));
  }
  void spell_call(Json& call) {
    const std::string id = text_at(call, "id");
    if (form_.nine_letter_ids) call["id"] = nine_letters(id);
    const auto function = call.find("function");
    if (function == call.end() || !function->is_object()) return;
    names_[id] = text_at(*function, "name");
    Json& arguments = (*function)["arguments"];
    if (arguments.is_null()) arguments = Json::object();
    if (form_.arguments_as_text && !arguments.is_string()) arguments = dump(arguments);
  }
  void spell_reasoning(Json& message) const {
    std::string thought = text_at(message, "reasoning_content");
    if (thought.empty()) thought = text_at(message, "thinking");
    const std::string content = text_at(message, "content");
    if (form_.text_or_thought && has_calls(message) && !content.empty() && !thought.empty()) {
      thought += "\n\n" + content;
      message["content"] = "";
    }
    for (const char* const name : {"reasoning_content", "thinking", "reasoning"}) {
      message.erase(name);
    }
    if (thought.empty()) return;
    if (form_.thinking_parts) {
      Json parts = Json::array({{{"type", "thinking"}, {"thinking", thought}}});
      if (!content.empty()) parts.push_back({{"type", "text"}, {"text", content}});
      message["content"] = std::move(parts);
      return;
    }
    // The names that templates have for it; Command's shows the plan of calls alone.
    message["reasoning_content"] = message["thinking"] = thought;
    if (has_calls(message)) message["tool_plan"] = std::move(thought);
  }

  const HistoryForm& form_;
  Json list_ = Json::array();
  std::map<std::string, std::string> names_;  // of called functions, by the calls' ids
};

// One message a call, each followed by its result.
Json with_single_calls(Json messages) {
  Json divided = Json::array();
  for (size_t at = 0; at < messages.size(); ++at) {
    Json& message = messages[at];
    if (!has_calls(message) || message["tool_calls"].size() == 1) {
      divided.push_back(std::move(message));
      continue;
    }
    size_t end = at + 1;
    while (end < messages.size() && text_at(messages[end], "role") == "tool") ++end;
    Json calls = std::move(message["tool_calls"]);
    for (size_t i = 0; i < calls.size(); ++i) {
      Json one = i == 0 ? message : Json{{"role", "assistant"}, {"content", ""}};
      if (message.contains("content") && message["content"].is_null()) one["content"] = nullptr;
      const std::string id = text_at(calls[i], "id");
      one["tool_calls"] = Json::array({std::move(calls[i])});
      divided.push_back(std::move(one));
      for (size_t result = at + 1; result < end; ++result) {
        if (messages[result].is_null() || text_at(messages[result], "tool_call_id") != id) continue;
        divided.push_back(std::exchange(messages[result], nullptr));
      }
    }
    for (size_t result = at + 1; result < end; ++result) {
      if (!messages[result].is_null()) divided.push_back(std::move(messages[result]));
    }
    at = end - 1;
  }
  return divided;
}

}  // namespace

Json in_history_form(Json context, const HistoryForm& form) {
  for (const char* const name : {"tools", "documents"}) {
    if (!context.contains(name)) context[name] = nullptr;
  }
  const auto messages = context.find("messages");
  if (messages == context.end() || !messages->is_array()) return context;
  Messages read(form);
  for (Json& message : *messages) {
    if (message.is_object()) read.add(std::move(message));
  }
  *messages = form.one_call ? with_single_calls(read.take()) : read.take();
  return context;
}

}  // namespace fasa::text
