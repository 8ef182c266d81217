// Turns the engine's results of a request into an HTTP response: whole, or a stream of events.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "bindings/http/api_error.h"
#include "bindings/http/http_exchange.h"
#include "bindings/http/reply_form.h"
#include "runtime/serve/generation_request.h"
#include "runtime/text/tokenizer.h"

namespace fasa::serve {

struct ReplyOptions {
  bool stream = false;
  bool logprobs = false;
  int choices = 1;
  int64_t prompt_tokens = 0;
  // How a chat's answers are taken apart; nothing: their text is content as it is.
  std::optional<MessageFormat> format = {};
};

// Any thread may call.
class Reply final : public RequestObserver {
 public:
  // Called once, on the engine's thread, with the first choice's answer; null after an error.
  using Done = std::function<void(const Answer*)>;

  // `tokenizer` outlives the reply.
  Reply(ReplyOptions options, std::unique_ptr<ReplyForm> form, const text::Tokenizer& tokenizer,
        std::shared_ptr<HttpExchange> exchange, Done done);

  void on_prefill(int64_t computed, int64_t total, int64_t cached) override;
  void on_token(int choice, const Answer& answer) override;
  void on_end(int choice, const Answer& answer) override;
  void on_error(ErrorKind kind, const std::string& message) override;

  // A comment where the stream has been still for so long: proxies and clients keep it open then.
  void ping(std::chrono::milliseconds still);

 private:
  using Clock = std::chrono::steady_clock;
  struct Choice {
    std::unique_ptr<MessageParser> parser;  // null: text is content
    AnswerMessage message;
    std::vector<TokenText> tokens;  // that no piece has told of
    size_t reported = 0;            // tokens of the answer in `tokens` so far
    int64_t text_bytes = 0;         // that were sent
  };

  void begin();
  void write(const std::string& frames);
  TokenText token_text(const TokenLogprobs& token) const;
  std::vector<MessagePiece> pieces_of(Choice& choice, const Answer& answer, bool ends);
  void take(int choice, const Answer& answer, bool ends);
  void add_piece(int choice, MessagePiece piece);
  void finish();

  const ReplyOptions options_;
  const std::unique_ptr<ReplyForm> form_;
  const text::Tokenizer& tokenizer_;
  const std::shared_ptr<HttpExchange> exchange_;
  Done done_;  // empty once it was called
  std::mutex mutex_;
  std::vector<Choice> choices_;
  Usage usage_;
  int ended_ = 0;
  bool begun_ = false;
  bool over_ = false;
  Clock::time_point written_ = Clock::now();
};

// The API error for a failure of the engine.
ApiError api_error_of(ErrorKind kind, const std::string& message);

}  // namespace fasa::serve
