// Responses of Anthropic's /v1/messages.
#include <fmt/format.h>

#include <utility>

#include "bindings/http/reply_form.h"

namespace fasa::serve {
namespace {

Json usage_json(const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.completion_tokens}};
}

Json stop_reason(const AnswerMessage& message) {
  if (message.end == AnswerEnd::kMaxTokens) return "max_tokens";
  if (finish_name(message) == "tool_calls") return "tool_use";
  return message.end == AnswerEnd::kStopString ? "stop_sequence" : "end_turn";
}

Json stop_sequence(const AnswerMessage& message) {
  const bool named = stop_reason(message) == "stop_sequence";
  return named ? Json(message.stop_string) : Json(nullptr);
}

Json thinking_block(const std::string& text) {
  return {{"type", "thinking"}, {"thinking", text}, {"signature", ""}};
}

Json text_block(const std::string& text) { return {{"type", "text"}, {"text", text}}; }

Json call_block(const ToolCall& call) {
  return {{"type", "tool_use"},
          {"id", call.id},
          {"name", call.name},
          {"input", *parse_arguments(call.arguments)}};
}

std::string event(const char* type, Json fields) {
  Json json = {{"type", type}};
  json.update(fields);
  return fmt::format("event: {}\n{}", type, frame_of(json_text(json)));
}

class MessagesForm final : public ReplyForm {
 public:
  explicit MessagesForm(ReplyHead head) : head_(std::move(head)) {}

  std::string whole(const std::vector<AnswerMessage>& choices, const Usage& usage) override {
    const AnswerMessage message = with_whole_calls(choices.front());
    Json content = Json::array();
    if (!message.reasoning.empty()) content.push_back(thinking_block(message.reasoning));
    if (!message.content.empty()) content.push_back(text_block(message.content));
    for (const ToolCall& call : message.calls) content.push_back(call_block(call));
    Json json = message_json(std::move(content), usage);
    json["stop_reason"] = stop_reason(message);
    json["stop_sequence"] = stop_sequence(message);
    return json_text(json);
  }

  std::string begin(int, const Usage& usage) override {
    return event("message_start", {{"message", message_json(Json::array(), usage)}});
  }
  std::string ping() override { return event("ping", Json::object()); }

  std::string piece(const ReplyPart& part) override {
    const std::string& text = part.piece.text;
    switch (part.piece.kind) {
      case MessagePiece::Kind::kCallBegin: {
        std::string events = drop_call();
        call_ = {part.call_id, text, ""};
        return events;
      }
      case MessagePiece::Kind::kCallArguments:
        call_->arguments += text;
        return part.piece.whole ? pass_call() : "";
      default: {
        std::string events = drop_call();
        return events += say(part.piece.kind, text);
      }
    }
  }

  std::string end_choice(int, const AnswerMessage&, const std::vector<TokenText>&) override {
    std::string events = drop_call();
    return events += close();
  }

  std::string end(const std::vector<AnswerMessage>& choices, const Usage& usage) override {
    const Json last = {{"stop_reason", stop_reason(choices.front())},
                       {"stop_sequence", stop_sequence(choices.front())}};
    return event("message_delta", {{"delta", last}, {"usage", usage_json(usage)}}) +
           event("message_stop", Json::object());
  }

  std::string error(const ApiError& error) override {
    return "event: error\n" + frame_of(error_body(error));
  }
  std::string error_body(const ApiError& error) const override {
    return anthropic_error_json(error);
  }

 private:
  Json message_json(Json content, const Usage& usage) const {
    return {{"id", head_.id},
            {"type", "message"},
            {"role", "assistant"},
            {"model", head_.model},
            {"content", std::move(content)},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr},
            {"usage", usage_json(usage)}};
  }
  // A piece of reasoning or of content.
  std::string say(MessagePiece::Kind kind, const std::string& text) {
    const bool thought = kind == MessagePiece::Kind::kReasoning;
    said_ |= !thought;
    std::string events = open(kind, thought ? thinking_block("") : text_block(""));
    return events += delta(thought ? Json{{"type", "thinking_delta"}, {"thinking", text}}
                                   : Json{{"type", "text_delta"}, {"text", text}});
  }
  // Clients run whatever they get of a call, and read half of its arguments as fewer of them: a
  // call is passed on once it is whole, one that was cut is text.
  std::string pass_call() {
    const ToolCall call = *std::exchange(call_, std::nullopt);
    std::string events = open(
        MessagePiece::Kind::kCallBegin,
        {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", Json::object()}});
    return events += delta({{"type", "input_json_delta"}, {"partial_json", call.arguments}});
  }
  std::string drop_call() {
    if (!call_) return "";
    const ToolCall call = *std::exchange(call_, std::nullopt);
    return say(MessagePiece::Kind::kContent, text_of_cut(call, said_));
  }
  // A call is always a block of its own.
  std::string open(MessagePiece::Kind kind, const Json& block) {
    if (open_ == kind && kind != MessagePiece::Kind::kCallBegin) return "";
    std::string events = close();
    open_ = kind;
    return events += event("content_block_start", {{"index", blocks_}, {"content_block", block}});
  }
  // Clients expect a signature at a thought's end.
  std::string close() {
    if (!open_) return "";
    const bool thought = *open_ == MessagePiece::Kind::kReasoning;
    const std::string signature =
        thought ? delta({{"type", "signature_delta"}, {"signature", ""}}) : "";
    open_.reset();
    return signature + event("content_block_stop", {{"index", blocks_++}});
  }
  std::string delta(const Json& delta) const {
    return event("content_block_delta", {{"index", blocks_}, {"delta", delta}});
  }

  const ReplyHead head_;
  int blocks_ = 0;  // that are closed
  std::optional<MessagePiece::Kind> open_;
  std::optional<ToolCall> call_;  // that is not whole yet
  bool said_ = false;             // there is content
};

}  // namespace

std::unique_ptr<ReplyForm> make_messages_form(ReplyHead head) {
  return std::make_unique<MessagesForm>(std::move(head));
}

}  // namespace fasa::serve
