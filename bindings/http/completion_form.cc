#include "bindings/http/completion_form.h"

#include "bindings/http/request_fields.h"

namespace fasa::serve {
namespace {

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json bytes_of(const std::string& text) {
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

Json chat_logprobs(const std::vector<TokenText>& tokens) {
  Json content = Json::array();
  for (const TokenText& token : tokens) {
    Json top = Json::array();
    for (const auto& other : token.top) {
      top.push_back(
          {{"token", other.text}, {"logprob", other.logprob}, {"bytes", bytes_of(other.text)}});
    }
    content.push_back({{"token", token.text},
                       {"logprob", token.logprob},
                       {"bytes", bytes_of(token.text)},
                       {"top_logprobs", std::move(top)}});
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json text_logprobs(const std::vector<TokenText>& tokens, int64_t offset) {
  Json names = Json::array(), logprobs = Json::array(), tops = Json::array();
  Json offsets = Json::array();
  for (const TokenText& token : tokens) {
    names.push_back(token.text);
    logprobs.push_back(token.logprob);
    Json top = Json::object();
    for (const auto& other : token.top) top[other.text] = other.logprob;
    tops.push_back(std::move(top));
    offsets.push_back(offset);
    offset += static_cast<int64_t>(token.text.size());
  }
  return {{"tokens", std::move(names)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json logprobs_of(const ReplyHead& head, const std::vector<TokenText>& tokens, int64_t offset) {
  if (!head.logprobs) return nullptr;
  return head.kind == ReplyKind::kChat ? chat_logprobs(tokens) : text_logprobs(tokens, offset);
}

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

Json reply_json(const ReplyHead& head, bool piece, Json choices) {
  const char* const object = head.kind == ReplyKind::kText ? "text_completion"
                             : piece                       ? "chat.completion.chunk"
                                                           : "chat.completion";
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"choices", std::move(choices)}};
}

std::string choice_frame(const ReplyHead& head, Json choice) {
  return frame_of(text_of(reply_json(head, true, Json::array({std::move(choice)}))));
}

Json call_json(const ToolCall& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

Json message_json(const AnswerMessage& message) {
  Json json = {{"role", "assistant"}, {"content", message.content}, {"refusal", nullptr}};
  if (!message.reasoning.empty()) json["reasoning_content"] = message.reasoning;
  if (message.calls.empty()) return json;
  if (message.content.empty()) json["content"] = nullptr;
  Json calls = Json::array();
  for (const ToolCall& call : message.calls) calls.push_back(call_json(call));
  json["tool_calls"] = std::move(calls);
  return json;
}

Json delta_of(const ReplyPart& part) {
  const MessagePiece& piece = part.piece;
  switch (piece.kind) {
    case MessagePiece::Kind::kContent:
      return {{"content", piece.text}};
    case MessagePiece::Kind::kReasoning:
      return {{"reasoning_content", piece.text}};
    case MessagePiece::Kind::kCallBegin: {
      Json call = {{"index", piece.call}};
      call.update(call_json({.id = part.call_id, .name = piece.text, .arguments = ""}));
      return {{"tool_calls", Json::array({std::move(call)})}};
    }
    default: {
      Json call = {{"index", piece.call}, {"function", {{"arguments", piece.text}}}};
      return {{"tool_calls", Json::array({std::move(call)})}};
    }
  }
}

}  // namespace

std::string finish_name(const AnswerMessage& message) {
  if (message.end == AnswerEnd::kMaxTokens) return "length";
  return message.calls.empty() ? "stop" : "tool_calls";
}

std::string CompletionForm::whole(const std::vector<AnswerMessage>& choices, const Usage& usage) {
  Json list = Json::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    Json choice = {{"index", i}};
    if (head_.kind == ReplyKind::kChat) {
      choice["message"] = message_json(choices[i]);
    } else {
      choice["text"] = choices[i].content;
    }
    choice["logprobs"] = logprobs_of(head_, choices[i].tokens, 0);
    choice["finish_reason"] = finish_name(choices[i]);
    list.push_back(std::move(choice));
  }
  Json reply = reply_json(head_, false, std::move(list));
  reply["usage"] = usage_json(usage);
  return text_of(reply);
}

std::string CompletionForm::begin(int choices) {
  if (head_.kind == ReplyKind::kText) return "";
  std::string frames;
  for (int choice = 0; choice < choices; ++choice) {
    frames += choice_frame(head_, {{"index", choice},
                                   {"delta", {{"role", "assistant"}, {"content", ""}}},
                                   {"logprobs", nullptr},
                                   {"finish_reason", nullptr}});
  }
  return frames;
}

std::string CompletionForm::piece(const ReplyPart& part) {
  Json choice = {{"index", part.choice}};
  if (head_.kind == ReplyKind::kChat) {
    choice["delta"] = delta_of(part);
  } else {
    choice["text"] = part.piece.text;
  }
  choice["logprobs"] = logprobs_of(head_, part.tokens, part.text_offset);
  choice["finish_reason"] = nullptr;
  return choice_frame(head_, std::move(choice));
}

std::string CompletionForm::end_choice(int choice, const AnswerMessage& message,
                                       const std::vector<TokenText>& rest) {
  Json last = {{"index", choice}};
  if (head_.kind == ReplyKind::kChat) {
    last["delta"] = Json::object();
  } else {
    last["text"] = "";
  }
  last["logprobs"] = rest.empty()
                         ? Json()
                         : logprobs_of(head_, rest, static_cast<int64_t>(message.content.size()));
  last["finish_reason"] = finish_name(message);
  return choice_frame(head_, std::move(last));
}

std::string CompletionForm::end(const std::vector<AnswerMessage>&, const Usage& usage) {
  std::string frames;
  if (head_.include_usage) {
    Json reply = reply_json(head_, true, Json::array());
    reply["usage"] = usage_json(usage);
    frames = frame_of(text_of(reply));
  }
  return frames + "data: [DONE]\n\n";
}

std::string CompletionForm::error(const ApiError& error) { return frame_of(error_json(error)); }

std::string frame_of(const std::string& json) { return "data: " + json + "\n\n"; }

}  // namespace fasa::serve
