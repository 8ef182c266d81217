// Responses of /v1/responses.
#include <fmt/format.h>

#include <utility>

#include "bindings/http/reply_form.h"

namespace fasa::serve {
namespace {

bool is_cut(const AnswerMessage& message) { return message.end == AnswerEnd::kMaxTokens; }

Json usage_json(const AnswerMessage& message, const Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", message.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

class ResponsesForm final : public ReplyForm {
 public:
  ResponsesForm(ReplyHead head, Json echo, std::vector<Tool> tools,
                std::function<void(const Json&)> ended)
      : head_(std::move(head)),
        echo_(std::move(echo)),
        tools_(std::move(tools)),
        ended_(std::move(ended)) {}

  std::string begin(int, const Usage&) override {
    std::string events =
        event("response.created", {{"response", response("in_progress", Json::array())}});
    return events += ping();
  }
  std::string ping() override {
    return event("response.in_progress", {{"response", response("in_progress", output_)}});
  }
  bool streams_long_prompts() const override { return true; }

  std::string piece(const ReplyPart& part) override {
    const std::string& text = part.piece.text;
    switch (part.piece.kind) {
      case MessagePiece::Kind::kCallBegin: {
        std::string events = drop_custom();
        if (!is_custom(text)) return events += open(Item::kCall, part);
        custom_ = {part.call_id, text, ""};
        return events;
      }
      case MessagePiece::Kind::kCallArguments: {
        if (custom_) {
          custom_->arguments += text;
          return part.piece.whole ? pass_custom() : "";
        }
        call_.arguments += text;
        call_.whole = part.piece.whole;
        Json fields = place();
        fields["delta"] = text;
        return event("response.function_call_arguments.delta", std::move(fields));
      }
      default: {
        const bool thought = part.piece.kind == MessagePiece::Kind::kReasoning;
        std::string events = drop_custom();
        return events += say(thought ? Item::kReasoning : Item::kMessage, text);
      }
    }
  }

  // An answer without text is a message without text.
  std::string end_choice(int, const AnswerMessage& message,
                         const std::vector<TokenText>&) override {
    std::string events = drop_custom();
    if (item_ == Item::kNone && output_.empty()) events = open(Item::kMessage, {});
    return events += close(is_cut(message) ? "incomplete" : "completed");
  }

  std::string end(const std::vector<AnswerMessage>& choices, const Usage& usage) override {
    return event(is_cut(choices.front()) ? "response.incomplete" : "response.completed",
                 {{"response", finished(choices, usage)}});
  }

  std::string error(const ApiError& error) override {
    Json failed = response("failed", output_);
    failed["error"] = {{"code", error.code().empty() ? "server_error" : error.code()},
                       {"message", error.what()}};
    return event("response.failed", {{"response", std::move(failed)}});
  }

  // The final state of the stream, without its events.
  std::string whole(const std::vector<AnswerMessage>& choices, const Usage& usage) override {
    const AnswerMessage& message = choices.front();
    const auto add = [&](MessagePiece::Kind kind, const std::string& text,
                         const ToolCall& call = {}) {
      if (text.empty()) return;
      piece({.choice = 0, .piece = {kind, text, 0, call.whole}, .call_id = call.id});
    };
    add(MessagePiece::Kind::kReasoning, message.reasoning);
    add(MessagePiece::Kind::kContent, message.content);
    for (const ToolCall& call : message.calls) {
      add(MessagePiece::Kind::kCallBegin, call.name, call);
      add(MessagePiece::Kind::kCallArguments, call.arguments, call);
    }
    end_choice(0, message, {});
    return json_text(finished(choices, usage));
  }

 private:
  enum class Item { kNone, kReasoning, kMessage, kCall };

  std::string event(const char* type, Json fields) {
    Json json = {{"type", type}, {"sequence_number", sequence_++}};
    json.update(fields);
    return fmt::format("event: {}\n{}", type, frame_of(json_text(json)));
  }

  // The members are copied from the request or set to their defaults.
  Json response(const char* status, Json output) const {
    Json json = {{"id", head_.id},
                 {"object", "response"},
                 {"created_at", head_.created},
                 {"status", status},
                 {"error", nullptr},
                 {"incomplete_details", nullptr},
                 {"instructions", nullptr},
                 {"max_output_tokens", nullptr},
                 {"model", head_.model},
                 {"output", std::move(output)},
                 {"previous_response_id", nullptr},
                 {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                 {"store", false},
                 {"temperature", nullptr},
                 {"text", {{"format", {{"type", "text"}}}}},
                 {"tool_choice", "auto"},
                 {"tools", Json::array()},
                 {"top_p", nullptr},
                 {"truncation", "disabled"},
                 {"usage", nullptr},
                 {"user", nullptr},
                 {"metadata", Json::object()}};
    json.update(echo_);
    return json;
  }

  Json finished(const std::vector<AnswerMessage>& choices, const Usage& usage) const {
    const AnswerMessage& message = choices.front();
    Json json = response(is_cut(message) ? "incomplete" : "completed", output_);
    if (is_cut(message)) json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    json["usage"] = usage_json(message, usage);
    if (ended_ && message.end != AnswerEnd::kCancelled) ended_(json);
    return json;
  }

  Json part_json(const std::string& text) const {
    if (item_ == Item::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
    return {{"type", "output_text"},
            {"text", text},
            {"annotations", Json::array()},
            {"logprobs", Json::array()}};
  }

  // The item so far: open items have no parts yet.
  Json item_json(const char* status) const {
    const bool open = status == std::string_view("in_progress");
    const std::string id =
        fmt::format("{}_{}", head_.id.substr(head_.id.find('_') + 1), output_.size());
    if (item_ == Item::kCall) return call_json(id, status);
    Json content = Json::array();
    if (!open) content.push_back(part_json(text_));
    if (item_ == Item::kReasoning) {
      return {{"id", "rs_" + id},
              {"type", "reasoning"},
              {"status", status},
              {"summary", Json::array()},
              {"content", std::move(content)}};
    }
    return {{"id", "msg_" + id},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }

  bool is_custom(const std::string& name) const {
    const Tool* const tool = find_tool(tools_, name);
    return tool != nullptr && tool->custom;
  }
  // Clients run the text of a custom call as it is: it is passed on once it is whole, one that was
  // cut is text.
  std::string pass_custom() {
    const ToolCall call = *std::exchange(custom_, std::nullopt);
    std::string events = open(
        Item::kCall, {.piece = {MessagePiece::Kind::kCallBegin, call.name}, .call_id = call.id});
    call_.arguments = call.arguments;
    call_.whole = true;
    return events;
  }
  std::string drop_custom() {
    if (!custom_) return "";
    const bool said = item_ == Item::kMessage && !text_.empty();
    return say(Item::kMessage, text_of_cut(*std::exchange(custom_, std::nullopt), said));
  }

  // A call by the client's name of the tool.
  Json call_json(const std::string& id, const char* status) const {
    const Tool* const tool = find_tool(tools_, call_.name);
    const bool custom = is_custom(call_.name);
    Json json = {{"id", (custom ? "ctc_" : "fc_") + id},
                 {"type", custom ? "custom_tool_call" : "function_call"},
                 {"status", status},
                 {"call_id", call_.id},
                 {"name", tool == nullptr ? call_.name : tool->own_name}};
    if (tool != nullptr && !tool->name_space.empty()) json["namespace"] = tool->name_space;
    if (custom) {
      json["input"] = call_.arguments.empty() ? "" : custom_input(call_.arguments);
    } else {
      json["arguments"] = call_.arguments;
    }
    return json;
  }

  // The events that end a call.
  std::string close_call(Json fields) {
    if (!is_custom(call_.name)) {
      fields["name"] = item_json("completed")["name"];
      fields["arguments"] = call_.arguments;
      return event("response.function_call_arguments.done", std::move(fields));
    }
    Json delta = fields;
    delta["delta"] = fields["input"] = custom_input(call_.arguments);
    std::string events = event("response.custom_tool_call_input.delta", std::move(delta));
    return events += event("response.custom_tool_call_input.done", std::move(fields));
  }

  Json place() const {
    Json place = {{"item_id", item_json("in_progress")["id"]}, {"output_index", output_.size()}};
    if (item_ != Item::kCall) place["content_index"] = 0;
    return place;
  }

  // A piece of reasoning or of a message.
  std::string say(Item item, const std::string& text) {
    const bool thought = item == Item::kReasoning;
    std::string events = open(item, {});
    text_ += text;
    Json fields = place();
    fields["delta"] = text;
    if (!thought) fields["logprobs"] = Json::array();
    return events += event(thought ? "response.reasoning_text.delta" : "response.output_text.delta",
                           std::move(fields));
  }

  std::string open(Item item, const ReplyPart& part) {
    if (item_ == item && item != Item::kCall) return "";
    std::string events = close("completed");
    item_ = item;
    if (item == Item::kCall) call_ = {part.call_id, part.piece.text, ""};
    events += event("response.output_item.added",
                    {{"output_index", output_.size()}, {"item", item_json("in_progress")}});
    if (item == Item::kCall) return events;
    Json fields = place();
    fields["part"] = part_json("");
    return events += event("response.content_part.added", std::move(fields));
  }

  std::string close(const char* status) {
    if (item_ == Item::kNone) return "";
    Json fields = place();
    std::string events;
    if (item_ == Item::kCall) {
      status = call_.whole ? "completed" : "incomplete";
      events = close_call(std::move(fields));
    } else {
      Json part = fields;
      part["part"] = part_json(text_);
      fields["text"] = text_;
      if (item_ == Item::kMessage) fields["logprobs"] = Json::array();
      const bool said = item_ == Item::kMessage;
      events = event(said ? "response.output_text.done" : "response.reasoning_text.done",
                     std::move(fields));
      events += event("response.content_part.done", std::move(part));
    }
    Json item = item_json(status);
    events +=
        event("response.output_item.done", {{"output_index", output_.size()}, {"item", item}});
    output_.push_back(std::move(item));
    item_ = Item::kNone;
    text_.clear();
    return events;
  }

  const ReplyHead head_;
  const Json echo_;
  const std::vector<Tool> tools_;
  const std::function<void(const Json&)> ended_;  // may be null
  int64_t sequence_ = 0;
  Item item_ = Item::kNone;         // the open one
  ToolCall call_;                   // of an open call
  std::optional<ToolCall> custom_;  // a call of a custom tool that is not whole yet
  std::string text_;                // of an open message or thought
  Json output_ = Json::array();
};

}  // namespace

std::unique_ptr<ReplyForm> make_responses_form(ReplyHead head, Json echo, std::vector<Tool> tools,
                                               std::function<void(const Json&)> ended) {
  return std::make_unique<ResponsesForm>(std::move(head), std::move(echo), std::move(tools),
                                         std::move(ended));
}

}  // namespace fasa::serve
