#include "tools/serve/openai_reply.h"

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

Json text_logprobs(const ReplyPart& part) {
  Json names = Json::array(), logprobs = Json::array(), tops = Json::array();
  Json offsets = Json::array();
  int64_t offset = part.text_offset;
  for (const TokenText& token : part.tokens) {
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

Json logprobs_of(const ReplyHead& head, const ReplyPart& part) {
  if (!head.logprobs) return nullptr;
  return head.kind == ReplyKind::kChat ? chat_logprobs(part.tokens) : text_logprobs(part);
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

}  // namespace

std::string finish_name(AnswerEnd reason) {
  return reason == AnswerEnd::kMaxTokens ? "length" : "stop";
}

std::string whole_reply(const ReplyHead& head, const std::vector<ReplyPart>& choices,
                        const std::vector<AnswerEnd>& reasons, const Usage& usage) {
  Json list = Json::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    Json choice = {{"index", choices[i].choice}};
    if (head.kind == ReplyKind::kChat) {
      choice["message"] = {
          {"role", "assistant"}, {"content", choices[i].text}, {"refusal", nullptr}};
    } else {
      choice["text"] = choices[i].text;
    }
    choice["logprobs"] = logprobs_of(head, choices[i]);
    choice["finish_reason"] = finish_name(reasons[i]);
    list.push_back(std::move(choice));
  }
  Json reply = reply_json(head, false, std::move(list));
  reply["usage"] = usage_json(usage);
  return text_of(reply);
}

std::string frame_of(const std::string& json) { return "data: " + json + "\n\n"; }

std::string first_frame(const ReplyHead& head, int choice) {
  if (head.kind == ReplyKind::kText) return "";
  return choice_frame(head, {{"index", choice},
                             {"delta", {{"role", "assistant"}, {"content", ""}}},
                             {"logprobs", nullptr},
                             {"finish_reason", nullptr}});
}

std::string text_frame(const ReplyHead& head, const ReplyPart& part) {
  Json choice = {{"index", part.choice}};
  if (head.kind == ReplyKind::kChat) {
    choice["delta"] = {{"content", part.text}};
  } else {
    choice["text"] = part.text;
  }
  choice["logprobs"] = logprobs_of(head, part);
  choice["finish_reason"] = nullptr;
  return choice_frame(head, std::move(choice));
}

std::string finish_frame(const ReplyHead& head, int choice, AnswerEnd reason) {
  Json last = {{"index", choice}};
  if (head.kind == ReplyKind::kChat) {
    last["delta"] = Json::object();
  } else {
    last["text"] = "";
  }
  last["logprobs"] = nullptr;
  last["finish_reason"] = finish_name(reason);
  return choice_frame(head, std::move(last));
}

std::string usage_frame(const ReplyHead& head, const Usage& usage) {
  Json reply = reply_json(head, true, Json::array());
  reply["usage"] = usage_json(usage);
  return frame_of(text_of(reply));
}

}  // namespace fasa::serve
