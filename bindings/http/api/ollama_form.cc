// Responses of Ollama's API: lines of JSON.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "bindings/http/reply_form.h"

namespace fasa::serve {
namespace {

std::string now_text() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

Json call_json(const ToolCall& call) {
  return {{"function", {{"name", call.name}, {"arguments", *parse_arguments(call.arguments)}}}};
}

class OllamaForm final : public ReplyForm {
 public:
  OllamaForm(ReplyHead head, bool chat) : head_(std::move(head)), chat_(chat) {}

  const char* content_type() const override { return "application/x-ndjson"; }
  std::string ping() override { return text_of(line("", "", {})); }

  std::string whole(const std::vector<AnswerMessage>& choices, const Usage& usage) override {
    const AnswerMessage message = with_whole_calls(choices.front());
    Json json = line(message.content, message.reasoning, message.calls);
    add_end(json, message, usage);
    return json_text(json);
  }
  std::string begin(int, const Usage&) override { return ""; }
  std::string piece(const ReplyPart& part) override {
    switch (part.piece.kind) {
      case MessagePiece::Kind::kContent:
        return text_of(line(part.piece.text, "", {}));
      case MessagePiece::Kind::kReasoning:
        return text_of(line("", part.piece.text, {}));
      default:
        return "";  // calls come whole
    }
  }
  std::string end_choice(int, const AnswerMessage& message,
                         const std::vector<TokenText>&) override {
    if (message.calls.empty()) return "";
    AnswerMessage calls;
    calls.calls = message.calls;
    calls = with_whole_calls(std::move(calls));
    return text_of(line(calls.content, "", calls.calls));
  }
  std::string end(const std::vector<AnswerMessage>& choices, const Usage& usage) override {
    Json json = line("", "", {});
    add_end(json, choices.front(), usage);
    return text_of(json);
  }
  std::string error(const ApiError& error) override { return error_body(error) + "\n"; }
  std::string error_body(const ApiError& error) const override { return ollama_error_json(error); }

 private:
  static std::string text_of(const Json& json) { return json_text(json) + "\n"; }

  Json line(const std::string& content, const std::string& thinking,
            const std::vector<ToolCall>& calls) const {
    Json json = {{"model", head_.model}, {"created_at", now_text()}};
    Json part = Json::object();
    if (!chat_) json["response"] = content;
    if (chat_) part = {{"role", "assistant"}, {"content", content}};
    if (!thinking.empty()) part["thinking"] = thinking;
    for (const ToolCall& call : calls) part["tool_calls"].push_back(call_json(call));
    if (chat_) {
      json["message"] = std::move(part);
    } else {
      json.update(part);
    }
    json["done"] = false;
    return json;
  }
  static void add_end(Json& json, const AnswerMessage& message, const Usage& usage) {
    json["done"] = true;
    json["done_reason"] = message.end == AnswerEnd::kMaxTokens ? "length" : "stop";
    json["total_duration"] = (usage.prompt_time + usage.answer_time).count();
    json["load_duration"] = 0;
    json["prompt_eval_count"] = usage.prompt_tokens;
    json["prompt_cached_count"] = usage.cached_tokens;
    json["prompt_eval_duration"] = usage.prompt_time.count();
    json["eval_count"] = usage.completion_tokens;
    json["eval_duration"] = usage.answer_time.count();
  }

  const ReplyHead head_;
  const bool chat_;
};

}  // namespace

std::unique_ptr<ReplyForm> make_ollama_form(ReplyHead head, bool chat) {
  return std::make_unique<OllamaForm>(std::move(head), chat);
}

}  // namespace fasa::serve
