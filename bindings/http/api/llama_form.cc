// Responses of /completion, as llama.cpp's server has them.
#include <utility>

#include "bindings/http/api/openai_request.h"
#include "bindings/http/reply_form.h"

namespace fasa::serve {
namespace {

const char* stop_type(const AnswerMessage& message) {
  switch (message.end) {
    case AnswerEnd::kMaxTokens:
      return "limit";
    case AnswerEnd::kStopString:
      return "word";
    case AnswerEnd::kEndOfSequence:
      return "eos";
    default:
      return "none";
  }
}

class LlamaForm final : public ReplyForm {
 public:
  LlamaForm(ReplyHead head, int64_t prompt_tokens, const CompletionFields& fields)
      : head_(std::move(head)), prompt_tokens_(prompt_tokens), progress_(fields.progress) {}

  std::string whole(const std::vector<AnswerMessage>& choices, const Usage& usage) override {
    return json_text(last(choices.front(), usage, choices.front().content));
  }
  std::string ping() override { return frame_of(json_text(piece_json(""))); }
  std::string begin(int, const Usage&) override { return ""; }
  std::string progress(const PromptProgress& progress) override {
    if (!progress_) return "";
    Json json = piece_json("");
    json["prompt_progress"] = progress_json(progress);
    return frame_of(json_text(json));
  }
  std::string piece(const ReplyPart& part) override {
    return frame_of(json_text(piece_json(part.piece.text)));
  }
  std::string end_choice(int, const AnswerMessage&, const std::vector<TokenText>&) override {
    return "";
  }
  std::string end(const std::vector<AnswerMessage>& choices, const Usage& usage) override {
    return frame_of(json_text(last(choices.front(), usage, "")));
  }
  std::string error(const ApiError& error) override { return frame_of(error_json(error)); }

 private:
  Json piece_json(const std::string& content) const {
    return {{"index", 0},    {"content", content}, {"tokens", Json::array()},
            {"stop", false}, {"id_slot", -1},      {"tokens_evaluated", prompt_tokens_}};
  }
  Json last(const AnswerMessage& message, const Usage& usage, const std::string& content) const {
    Json json = piece_json(content);
    json["stop"] = true;
    json["model"] = head_.model;
    json["tokens_predicted"] = usage.completion_tokens;
    json["tokens_cached"] = usage.cached_tokens;
    json["truncated"] = false;
    json["stop_type"] = stop_type(message);
    json["stopping_word"] = message.stop_string;
    return json;
  }

  const ReplyHead head_;
  const int64_t prompt_tokens_;
  const bool progress_;
};

}  // namespace

std::unique_ptr<ReplyForm> make_llama_form(ReplyHead head, int64_t prompt_tokens,
                                           const CompletionFields& fields) {
  return std::make_unique<LlamaForm>(std::move(head), prompt_tokens, fields);
}

}  // namespace fasa::serve
