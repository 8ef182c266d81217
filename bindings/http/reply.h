// Turns the engine's results of a request into an HTTP response: whole, or a stream of events.
// The engine's thread hands over ids and bytes; other threads format them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/http/api_error.h"
#include "bindings/http/job_pool.h"
#include "bindings/http/reply_form.h"
#include "bindings/http/request_log.h"
#include "bindings/http/server/http_exchange.h"
#include "runtime/serve/generation_request.h"
#include "runtime/text/tokenizer.h"

namespace fasa::serve {

struct ReplyOptions {
  bool stream = false;
  bool logprobs = false;
  bool silent = false;        // the answer is to have no tokens: the prompt alone is computed
  int choices = 1;            // of all prompts
  int64_t prompt_tokens = 0;  // likewise
  LoggedRequest logged = {};  // what is known of it before
  RequestLog* log = nullptr;  // null: none
  std::chrono::steady_clock::time_point came{};
};

// The first choice's answer, once it has ended.
struct EndedAnswer {
  std::vector<int32_t> ids;
  std::string text;
  AnswerEnd end = AnswerEnd::kOpen;
  std::string stop_string = {};
  int64_t reasoning_tokens = 0;
  Answer::DraftCounts drafts = {};
  AuditCounts audit = {};
  // As the client gets it.
  std::string reasoning = {}, content = {};
  std::vector<ToolCall> calls = {};
};

// Any thread may call.
class Reply final : public RequestObserver, public std::enable_shared_from_this<Reply> {
 public:
  // Called at most once, on a thread of `formatters`, before the client sees the end; not at all
  // after an error.
  using Done = std::function<void(EndedAnswer)>;

  // `tokenizer` outlives the reply; `formatters` outlives it or close().
  Reply(ReplyOptions options, std::unique_ptr<ReplyForm> form, const text::Tokenizer& tokenizer,
        std::shared_ptr<HttpExchange> exchange, JobPool& formatters, Done done);

  void on_prefill(int64_t computed, int64_t total, int64_t cached) override;
  void on_recomputed(const Recomputed& tokens) override;
  void on_token(int choice, const Answer& answer) override;
  void on_end(int choice, const Answer& answer) override;
  void on_error(ErrorKind kind, const std::string& message) override;

  // A frame without content where the stream has been still for so long: proxies and clients keep
  // it open then.
  void ping(std::chrono::milliseconds still);
  // Drops all later events of the engine.
  void close();

 private:
  using Clock = std::chrono::steady_clock;
  // An event reported by the engine.
  struct Event {
    enum class Kind : uint8_t { kRecomputed, kPrefill, kToken, kEnd, kError };
    Kind kind = Kind::kPrefill;
    int choice = 0;
    Clock::time_point at = Clock::now();
    Recomputed recomputed{};                   // of kRecomputed
    PromptProgress progress = {};              // of kPrefill
    std::vector<MessagePiece> pieces = {};     // of kToken and kEnd
    std::vector<TokenLogprobs> logprobs = {};  // of tokens that no event before has told of
    EndedAnswer answer = {};                   // of kEnd; its text of choice 0 alone
    ErrorKind error = ErrorKind::kUsage;       // of kError, as the last
    std::string message = {};
  };
  struct Choice {
    AnswerMessage message;
    std::vector<TokenText> tokens;  // that no piece has told of
    int64_t characters = 0;         // of text that were sent
  };

  void hand_over(Event event);
  void format_events();
  void format(Event& event);
  void begin();
  void write(const std::string& frames);
  TokenText token_text(const TokenLogprobs& token) const;
  void take_token(const Event& event);
  void take_end(Event& event);
  void take_error(const Event& event);
  void add_piece(int choice, MessagePiece piece);
  void finish();
  void log_end(const std::string& end, int status, Clock::time_point at);

  const ReplyOptions options_;
  const std::unique_ptr<ReplyForm> form_;
  const text::Tokenizer& tokenizer_;
  const std::shared_ptr<HttpExchange> exchange_;
  JobPool& formatters_;
  std::optional<Clock::time_point> reading_since_;  // the engine's
  std::vector<size_t>
      told_;  // of each choice, tokens whose logprobs were handed over; the engine's

  struct Inbox {
    std::mutex mutex;
    std::vector<Event> events;  // not formatted yet
    bool formatting = false;    // a job is there for them
    bool closed = false;
  } inbox_;

  std::mutex mutex_;  // of what follows
  Done done_;         // empty once it was called
  std::vector<Choice> choices_;
  Usage usage_;
  Recomputed recomputed_{};
  int ended_ = 0;
  bool begun_ = false;
  bool over_ = false;
  std::optional<Clock::time_point> first_token_;
  Clock::time_point written_ = Clock::now();
};

// One of several prompts of a reply. Each is a request to the engine, which numbers its choices
// from 0.
class ReplyPrompt final : public RequestObserver {
 public:
  struct Sum {  // over the prompts; the engine's thread
    int64_t computed = 0, total = 0, cached = 0;
  };

  ReplyPrompt(std::shared_ptr<Reply> reply, std::shared_ptr<Sum> sum, int first_choice)
      : reply_(std::move(reply)), sum_(std::move(sum)), first_choice_(first_choice) {}

  void on_prefill(int64_t computed, int64_t total, int64_t cached) override {
    sum_->computed += computed - std::exchange(own_.computed, computed);
    sum_->total += total - std::exchange(own_.total, total);
    sum_->cached += cached - std::exchange(own_.cached, cached);
    reply_->on_prefill(sum_->computed, sum_->total, sum_->cached);
  }
  void on_recomputed(const Recomputed& tokens) override { reply_->on_recomputed(tokens); }
  void on_token(int choice, const Answer& answer) override {
    reply_->on_token(first_choice_ + choice, answer);
  }
  void on_end(int choice, const Answer& answer) override {
    reply_->on_end(first_choice_ + choice, answer);
  }
  void on_error(ErrorKind kind, const std::string& message) override {
    reply_->on_error(kind, message);
  }

 private:
  const std::shared_ptr<Reply> reply_;
  const std::shared_ptr<Sum> sum_;
  const int first_choice_;
  Sum own_;
};

// The API error for a failure of the engine.
ApiError api_error_of(ErrorKind kind, const std::string& message);

}  // namespace fasa::serve
