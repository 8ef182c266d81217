#include "bindings/http/reply.h"

#include <utility>

#include "bindings/http/api_error.h"

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

Reply::Reply(ReplyOptions options, std::unique_ptr<ReplyForm> form,
             const text::Tokenizer& tokenizer, std::shared_ptr<HttpExchange> exchange, Done done)
    : options_(std::move(options)),
      form_(std::move(form)),
      tokenizer_(tokenizer),
      exchange_(std::move(exchange)),
      done_(std::move(done)),
      choices_(static_cast<size_t>(options_.choices)) {
  for (Choice& choice : choices_) {
    if (options_.format) choice.parser = std::make_unique<MessageParser>(*options_.format);
  }
  usage_.prompt_tokens = options_.prompt_tokens;
}

void Reply::begin() {
  if (begun_) return;
  begun_ = true;
  if (!options_.stream) return;
  exchange_->begin({.headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}},
                    .content_type = "text/event-stream; charset=utf-8"});
  write(form_->begin(options_.choices));
}

void Reply::write(const std::string& frames) {
  if (frames.empty()) return;
  written_ = Clock::now();
  exchange_->write(frames);
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

std::vector<MessagePiece> Reply::pieces_of(Choice& choice, const Answer& answer, bool ends) {
  if (choice.parser != nullptr) {
    return ends ? choice.parser->finish() : choice.parser->push(answer.fresh());
  }
  if (ends || answer.fresh().empty()) return {};
  return {{MessagePiece::Kind::kContent, std::string(answer.fresh())}};
}

void Reply::take(int choice, const Answer& answer, bool ends) {
  Choice& of = choices_[static_cast<size_t>(choice)];
  if (options_.logprobs) {
    const auto& logprobs = answer.logprobs();
    for (; of.reported < logprobs.size(); ++of.reported) {
      of.tokens.push_back(token_text(logprobs[of.reported]));
    }
  }
  for (MessagePiece& piece : pieces_of(of, answer, ends)) add_piece(choice, std::move(piece));
}

// Tokens whose text is held back come with the text.
void Reply::add_piece(int choice, MessagePiece piece) {
  Choice& of = choices_[static_cast<size_t>(choice)];
  AnswerMessage& message = of.message;
  ReplyPart part{.choice = choice, .piece = std::move(piece), .text_offset = of.text_bytes};
  switch (part.piece.kind) {
    case MessagePiece::Kind::kContent:
      message.content += part.piece.text;
      break;
    case MessagePiece::Kind::kReasoning:
      message.reasoning += part.piece.text;
      break;
    case MessagePiece::Kind::kCallBegin:
      part.call_id = new_call_id();
      message.calls.push_back({part.call_id, part.piece.text, ""});
      break;
    case MessagePiece::Kind::kCallArguments:
      message.calls.back().arguments += part.piece.text;
  }
  message.tokens.insert(message.tokens.end(), of.tokens.begin(), of.tokens.end());
  part.tokens = std::exchange(of.tokens, {});
  of.text_bytes += static_cast<int64_t>(part.piece.text.size());
  if (options_.stream) write(form_->piece(part));
}

void Reply::on_token(int choice, const Answer& answer) {
  const std::lock_guard lock(mutex_);
  if (over_) return;
  begin();
  Choice& of = choices_[static_cast<size_t>(choice)];
  if (of.parser != nullptr && of.parser->thinking()) ++of.message.reasoning_tokens;
  take(choice, answer, false);
}

void Reply::on_end(int choice, const Answer& answer) {
  {
    const std::lock_guard lock(mutex_);
    if (over_) return;
    begin();
    take(choice, answer, true);
    Choice& of = choices_[static_cast<size_t>(choice)];
    of.message.end = answer.end();
    of.message.token_count = static_cast<int64_t>(answer.tokens().size());
    usage_.completion_tokens += of.message.token_count;
    const std::vector<TokenText> rest = std::exchange(of.tokens, {});
    of.message.tokens.insert(of.message.tokens.end(), rest.begin(), rest.end());
    if (options_.stream) write(form_->end_choice(choice, of.message, rest));
    if (++ended_ == options_.choices) finish();
  }
  if (choice != 0) return;
  if (const Done done = std::exchange(done_, nullptr)) done(&answer);
}

void Reply::finish() {
  over_ = true;
  std::vector<AnswerMessage> messages;
  for (Choice& choice : choices_) messages.push_back(std::move(choice.message));
  if (!options_.stream) return exchange_->send({.body = form_->whole(messages, usage_)});
  write(form_->end(messages, usage_));
  exchange_->end();
}

void Reply::on_error(ErrorKind kind, const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    if (over_) return;
    over_ = true;
    const ApiError error = api_error_of(kind, message);
    if (options_.stream && begun_) {
      write(form_->error(error));
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
