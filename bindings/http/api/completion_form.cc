// Responses of /v1/chat/completions and /v1/completions.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "bindings/http/api/openai_request.h"
#include "bindings/http/reply_form.h"
#include "runtime/base/utf8.h"

namespace fasa::serve {
namespace {

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

// Bytes at the end that begin a character.
size_t open_bytes(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const size_t size = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return size > back ? back : 0;
  }
  return 0;
}

// A token as a key: its text, or OpenAI's name of bytes that are no text.
std::string token_key(const std::string& text) {
  const std::string json = json_text(Json(text));
  if (Json::parse(json) == Json(text)) return text;
  std::string key = "bytes:";
  for (const char c : text) key += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return key;
}

// The texts of the tokens join to the answer's: a character belongs to the token that ends it.
Json text_logprobs(const std::vector<TokenText>& tokens, int64_t offset) {
  Json names = Json::array(), logprobs = Json::array(), tops = Json::array();
  Json offsets = Json::array();
  std::string open;  // the beginning of a character
  for (const TokenText& token : tokens) {
    const std::string known = open + token.text;
    const size_t size = known.size() - (&token == &tokens.back() ? 0 : open_bytes(known));
    std::string text = known.substr(0, size);
    open = known.substr(size);
    logprobs.push_back(token.logprob);
    Json top = Json::object();
    for (const auto& other : token.top) top.emplace(token_key(other.text), other.logprob);
    tops.push_back(std::move(top));
    offsets.push_back(offset);
    offset += count_characters(text);
    names.push_back(std::move(text));
  }
  return {{"tokens", std::move(names)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json usage_json(const Usage& usage) {
  Json json = {{"prompt_tokens", usage.prompt_tokens},
               {"completion_tokens", usage.completion_tokens},
               {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
               {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
               {"completion_tokens_details",
                {{"accepted_prediction_tokens", usage.drafts.right},
                 {"rejected_prediction_tokens", usage.drafts.made - usage.drafts.right}}}};
  if (usage.audit.tokens > 0) {
    json["audit"] = {{"tokens", usage.audit.tokens},
                     {"same_best_tokens", usage.audit.same_best},
                     {"mean_kl", usage.audit.mean_kl()},
                     {"max_kl", usage.audit.kl_max}};
  }
  return json;
}

bool is_custom_tool(const std::vector<Tool>& tools, const std::string& name) {
  const Tool* const tool = find_tool(tools, name);
  return tool != nullptr && tool->custom;
}

// A custom tool's call has a text.
Json call_json(const ToolCall& call, const std::vector<Tool>& tools) {
  if (is_custom_tool(tools, call.name)) {
    return {{"id", call.id},
            {"type", "custom"},
            {"custom", {{"name", call.name}, {"input", custom_input(call.arguments)}}}};
  }
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

// Clients run the text of a custom call as it is: one that was cut is text of the message.
Json message_json(const AnswerMessage& answer, const std::vector<Tool>& tools) {
  const AnswerMessage message = with_whole_calls(
      answer, [&](const ToolCall& call) { return !is_custom_tool(tools, call.name); });
  Json json = {{"role", "assistant"}, {"content", message.content}, {"refusal", nullptr}};
  if (!message.reasoning.empty()) json["reasoning_content"] = message.reasoning;
  if (message.calls.empty()) return json;
  if (message.content.empty()) json["content"] = nullptr;
  Json calls = Json::array();
  for (const ToolCall& call : message.calls) calls.push_back(call_json(call, tools));
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
      call.update(call_json({.id = part.call_id, .name = piece.text, .arguments = ""}, {}));
      return {{"tool_calls", Json::array({std::move(call)})}};
    }
    default: {
      Json call = {{"index", piece.call}, {"function", {{"arguments", piece.text}}}};
      return {{"tool_calls", Json::array({std::move(call)})}};
    }
  }
}

class CompletionForm final : public ReplyForm {
 public:
  CompletionForm(ReplyHead head, ReplyKind kind, const CompletionFields& fields,
                 std::vector<Tool> tools)
      : head_(std::move(head)),
        kind_(kind),
        tools_(std::move(tools)),
        logprobs_(fields.logprobs),
        include_usage_(fields.include_usage),
        progress_(fields.progress) {}

  std::string whole(const std::vector<AnswerMessage>& choices, const Usage& usage) override {
    Json list = Json::array();
    for (size_t i = 0; i < choices.size(); ++i) {
      Json choice = {{"index", i}};
      if (kind_ == ReplyKind::kChat) {
        choice["message"] = message_json(choices[i], tools_);
      } else {
        choice["text"] = choices[i].content;
      }
      choice["logprobs"] = logprobs_of(choices[i].tokens, 0);
      choice["finish_reason"] = finish_name(choices[i]);
      list.push_back(std::move(choice));
    }
    Json reply = reply_json(false, std::move(list));
    reply["usage"] = usage_json(usage);
    return json_text(reply);
  }

  std::string begin(int choices, const Usage&) override {
    if (kind_ == ReplyKind::kText) return "";
    std::string frames;
    for (int choice = 0; choice < choices; ++choice) {
      frames += choice_frame({{"index", choice},
                              {"delta", {{"role", "assistant"}, {"content", ""}}},
                              {"logprobs", nullptr},
                              {"finish_reason", nullptr}});
    }
    return frames;
  }

  std::string ping() override { return choice_frame(empty_choice(0)); }

  // As llama.cpp's server has it.
  std::string progress(const PromptProgress& progress) override {
    if (!progress_) return "";
    Json reply = reply_json(true, Json::array({empty_choice(0)}));
    reply["prompt_progress"] = progress_json(progress);
    return frame_of(json_text(reply));
  }

  std::string piece(const ReplyPart& part) override {
    if (is_custom(part)) return "";
    Json choice = {{"index", part.choice}};
    if (kind_ == ReplyKind::kChat) {
      choice["delta"] = delta_of(part);
    } else {
      choice["text"] = part.piece.text;
    }
    choice["logprobs"] = logprobs_of(part.tokens, part.text_offset);
    choice["finish_reason"] = nullptr;
    return choice_frame(std::move(choice));
  }

  std::string end_choice(int choice, const AnswerMessage& message,
                         const std::vector<TokenText>& rest) override {
    std::string frames;
    for (const auto& [of, call] : custom_) {
      if (of != choice) continue;
      const ToolCall& custom = message.calls[static_cast<size_t>(call)];
      Json json = {{"index", call}};
      json.update(call_json(custom, tools_));
      Json delta = {{"tool_calls", Json::array({std::move(json)})}};
      if (!custom.whole) delta = {{"content", text_of_cut(custom, !message.content.empty())}};
      frames += choice_frame({{"index", choice},
                              {"delta", std::move(delta)},
                              {"logprobs", nullptr},
                              {"finish_reason", nullptr}});
    }
    Json last = empty_choice(choice);
    if (!rest.empty()) last["logprobs"] = logprobs_of(rest, count_characters(message.content));
    last["finish_reason"] = finish_name(message);
    return frames + choice_frame(std::move(last));
  }

  std::string end(const std::vector<AnswerMessage>&, const Usage& usage) override {
    std::string frames;
    if (include_usage_) {
      Json reply = reply_json(true, Json::array());
      reply["usage"] = usage_json(usage);
      frames = frame_of(json_text(reply));
    }
    return frames + "data: [DONE]\n\n";
  }

  std::string error(const ApiError& error) override { return frame_of(error_json(error)); }

 private:
  // Whether the part belongs to a custom tool's call.
  bool is_custom(const ReplyPart& part) {
    const bool begins = part.piece.kind == MessagePiece::Kind::kCallBegin;
    if (!begins && part.piece.kind != MessagePiece::Kind::kCallArguments) return false;
    const std::pair<int, int> call(part.choice, static_cast<int>(part.piece.call));
    if (begins && is_custom_tool(tools_, part.piece.text)) custom_.insert(call);
    return custom_.contains(call);
  }

  Json empty_choice(int choice) const {
    Json json = {{"index", choice}};
    if (kind_ == ReplyKind::kChat) {
      json["delta"] = Json::object();
    } else {
      json["text"] = "";
    }
    json["logprobs"] = json["finish_reason"] = nullptr;
    return json;
  }

  Json logprobs_of(const std::vector<TokenText>& tokens, int64_t offset) const {
    if (!logprobs_) return nullptr;
    return kind_ == ReplyKind::kChat ? chat_logprobs(tokens) : text_logprobs(tokens, offset);
  }

  Json reply_json(bool piece, Json choices) const {
    const char* const object = kind_ == ReplyKind::kText ? "text_completion"
                               : piece                   ? "chat.completion.chunk"
                                                         : "chat.completion";
    return {{"id", head_.id},
            {"object", object},
            {"created", head_.created},
            {"model", head_.model},
            {"choices", std::move(choices)}};
  }

  std::string choice_frame(Json choice) const {
    return frame_of(json_text(reply_json(true, Json::array({std::move(choice)}))));
  }

  const ReplyHead head_;
  const ReplyKind kind_;
  const std::vector<Tool> tools_;
  std::set<std::pair<int, int>> custom_;  // choice and call: its text comes whole, at the end
  const bool logprobs_;
  const bool include_usage_;
  const bool progress_;
};

}  // namespace

std::unique_ptr<ReplyForm> make_completion_form(ReplyHead head, ReplyKind kind,
                                                const CompletionFields& fields,
                                                std::vector<Tool> tools) {
  return std::make_unique<CompletionForm>(std::move(head), kind, fields, std::move(tools));
}

std::string frame_of(const std::string& json) { return "data: " + json + "\n\n"; }

Json progress_json(const PromptProgress& progress) {
  return {{"total", progress.total},
          {"cache", progress.cached},
          {"processed", progress.processed},
          {"time_ms", progress.ms}};
}

}  // namespace fasa::serve
