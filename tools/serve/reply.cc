#include "tools/serve/reply.h"

#include <utility>

#include "tools/serve/api_error.h"

namespace fasa::serve {

ApiError api_error_of(ErrorKind kind, const std::string& message) {
  switch (kind) {
    case ErrorKind::kUsage:
    case ErrorKind::kInput:
      return {400, "invalid_request_error", message};
    case ErrorKind::
        kBudget:  // alone on the device, and too large all the same: no use to try again
      return {400, "invalid_request_error", message, "", "memory_exceeded"};
    default:
      return {500, "server_error", message};
  }
}

Reply::Reply(ReplyOptions options, const text::Tokenizer& tokenizer,
             std::shared_ptr<HttpExchange> exchange, Done done)
    : options_(std::move(options)),
      tokenizer_(tokenizer),
      exchange_(std::move(exchange)),
      done_(std::move(done)),
      told_(static_cast<size_t>(options_.choices)),
      ends_(static_cast<size_t>(options_.choices), AnswerEnd::kOpen) {
  for (int choice = 0; choice < options_.choices; ++choice) parts_.push_back({.choice = choice});
  usage_.prompt_tokens = options_.prompt_tokens;
}

void Reply::begin() {
  if (begun_) return;
  begun_ = true;
  if (!options_.stream) return;
  exchange_->begin({.headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}},
                    .content_type = "text/event-stream; charset=utf-8"});
  for (int choice = 0; choice < options_.choices; ++choice) {
    if (const std::string frame = first_frame(options_.head, choice); !frame.empty()) write(frame);
  }
}

void Reply::write(const std::string& frame) {
  written_ = Clock::now();
  exchange_->write(frame);
}

void Reply::on_prefill(int64_t, int64_t, int64_t cached) {
  const std::lock_guard lock(mutex_);
  usage_.cached_tokens = cached;
  begin();
}

TokenText Reply::token_text(const TokenLogprobs& token) const {
  const auto text_of = [&](int32_t id) { return tokenizer_.decode({&id, 1}, false); };
  TokenText told{.text = text_of(token.id), .logprob = token.logprob};
  for (const auto& [id, logprob] : token.top) told.top.push_back({text_of(id), logprob});
  return told;
}

void Reply::on_token(int choice, const Answer& answer) {
  const std::lock_guard lock(mutex_);
  if (over_) return;
  begin();
  const auto index = static_cast<size_t>(choice);
  ReplyPart& part = parts_[index];
  part.text += answer.fresh();
  if (options_.head.logprobs) {
    const auto& logprobs = answer.logprobs();
    for (size_t& told = told_[index]; told < logprobs.size(); ++told) {
      part.tokens.push_back(token_text(logprobs[told]));
    }
  }
  // Tokens whose text is held back come with the text.
  if (!options_.stream || part.text.empty()) return;
  write(text_frame(options_.head, part));
  const auto sent = static_cast<int64_t>(part.text.size());
  part = {.choice = choice, .text_offset = part.text_offset + sent};
}

void Reply::on_end(int choice, const Answer& answer) {
  {
    const std::lock_guard lock(mutex_);
    if (over_) return;
    ends_[static_cast<size_t>(choice)] = answer.end();
    usage_.completion_tokens += static_cast<int64_t>(answer.tokens().size());
    ++ended_;
    if (options_.stream) {
      begin();
      write(finish_frame(options_.head, choice, answer.end()));
    }
    if (ended_ == options_.choices) finish();
  }
  if (choice != 0) return;
  if (const Done done = std::exchange(done_, nullptr)) done(&answer);
}

void Reply::finish() {
  over_ = true;
  if (!options_.stream) {
    return exchange_->send({.body = whole_reply(options_.head, parts_, ends_, usage_)});
  }
  if (options_.include_usage) write(usage_frame(options_.head, usage_));
  write(kLastFrame);
  exchange_->end();
}

void Reply::on_error(ErrorKind kind, const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    if (over_) return;
    over_ = true;
    const ApiError error = api_error_of(kind, message);
    if (options_.stream && begun_) {
      write(frame_of(error_json(error)));  // the status has gone out: an event says it
      exchange_->end();
    } else {
      exchange_->send(error_response(error));
    }
  }
  if (const Done done = std::exchange(done_, nullptr)) done(nullptr);
}

void Reply::ping(std::chrono::milliseconds still) {
  const std::lock_guard lock(mutex_);
  if (options_.stream && !over_ && Clock::now() - written_ >= still) {
    begin();
    write(kPingFrame);
  }
}

}  // namespace fasa::serve
