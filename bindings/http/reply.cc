#include "bindings/http/reply.h"

#include <utility>

#include "bindings/http/api_error.h"
#include "runtime/base/utf8.h"

namespace fasa::serve {

ApiError api_error_of(ErrorKind kind, const std::string& message) {
  switch (kind) {
    case ErrorKind::kUsage:
    case ErrorKind::kInput:
      return {400, "invalid_request_error", message};
    case ErrorKind::kBudget:  // exceeds the memory even when it runs alone: retrying cannot help
      return {400, "invalid_request_error", message, "", "memory_exceeded"};
    default:
      return {500, "server_error", message};
  }
}

Reply::Reply(ReplyOptions options, std::unique_ptr<ReplyForm> form,
             const text::Tokenizer& tokenizer, std::shared_ptr<HttpExchange> exchange,
             JobPool& formatters, Done done)
    : options_(std::move(options)),
      form_(std::move(form)),
      tokenizer_(tokenizer),
      exchange_(std::move(exchange)),
      formatters_(formatters),
      told_(static_cast<size_t>(options_.choices)),
      done_(std::move(done)),
      choices_(static_cast<size_t>(options_.choices)) {
  usage_.prompt_tokens = options_.prompt_tokens;
}

// --- on the engine's thread ---

void Reply::on_prefill(int64_t computed, int64_t total, int64_t cached) {
  const auto now = Clock::now();
  if (!reading_since_) reading_since_ = now;
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - *reading_since_);
  hand_over(
      {.kind = Event::Kind::kPrefill,
       .progress = {.total = total, .cached = cached, .processed = computed, .ms = ms.count()}});
}

void Reply::on_recomputed(const Recomputed& tokens) {
  hand_over({.kind = Event::Kind::kRecomputed, .recomputed = tokens});
}

void Reply::on_token(int choice, const Answer& answer) {
  Event event{.kind = Event::Kind::kToken, .choice = choice, .pieces = answer.pieces()};
  if (options_.logprobs) {
    size_t& told = told_[static_cast<size_t>(choice)];
    const auto& all = answer.logprobs();
    event.logprobs.assign(all.begin() + static_cast<ptrdiff_t>(told), all.end());
    told = all.size();
  }
  hand_over(std::move(event));
}

void Reply::on_end(int choice, const Answer& answer) {
  Event event{.kind = Event::Kind::kEnd, .choice = choice};
  event.answer = {.ids = answer.tokens(),
                  .text = {},
                  .end = answer.end(),
                  .stop_string = answer.stop_string(),
                  .reasoning_tokens = answer.reasoning_tokens(),
                  .drafts = answer.drafts(),
                  .audit = answer.audit()};
  if (choice == 0) event.answer.text = answer.text();
  hand_over(std::move(event));
}

void Reply::on_error(ErrorKind kind, const std::string& message) {
  hand_over({.kind = Event::Kind::kError, .error = kind, .message = message});
}

// Costs a short lock and an allocation on the engine's thread; formatting runs elsewhere.
void Reply::hand_over(Event event) {
  const std::lock_guard lock(inbox_.mutex);
  if (inbox_.closed) return;
  inbox_.events.push_back(std::move(event));
  if (inbox_.formatting) return;
  inbox_.formatting = true;
  formatters_.add([self = shared_from_this()] { self->format_events(); });
}

void Reply::close() {
  const std::lock_guard lock(inbox_.mutex);
  inbox_.closed = true;
  inbox_.events.clear();
}

// --- on the formatting threads, one at a time ---

void Reply::format_events() {
  for (;;) {
    std::vector<Event> events;
    {
      const std::lock_guard lock(inbox_.mutex);
      if (inbox_.events.empty()) {
        inbox_.formatting = false;
        return;
      }
      events.swap(inbox_.events);
    }
    const std::lock_guard lock(mutex_);
    for (Event& event : events) {
      if (!over_) format(event);
    }
  }
}

void Reply::format(Event& event) {
  switch (event.kind) {
    case Event::Kind::kRecomputed:  // of several prompts, the sum
      for (size_t i = 0; i < recomputed_.size(); ++i) recomputed_[i] += event.recomputed[i];
      return;
    case Event::Kind::kPrefill:
      usage_.cached_tokens = event.progress.cached;
      begin();
      if (options_.stream) write(form_->progress(event.progress));
      return;
    case Event::Kind::kToken:
      return take_token(event);
    case Event::Kind::kEnd:
      return take_end(event);
    case Event::Kind::kError:
      return take_error(event);
  }
}

void Reply::begin() {
  if (begun_) return;
  begun_ = true;
  if (!options_.stream) return;
  exchange_->begin({.headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}},
                    .content_type = form_->content_type()});
  write(form_->begin(options_.choices, usage_));
}

void Reply::write(const std::string& frames) {
  if (frames.empty()) return;
  written_ = Clock::now();
  exchange_->write(frames);
}

TokenText Reply::token_text(const TokenLogprobs& token) const {
  const auto text_of = [&](int32_t id) {
    std::string bytes = tokenizer_.token_bytes(id);
    return bytes.empty() ? tokenizer_.decode({&id, 1}, false) : bytes;
  };
  TokenText told{.text = text_of(token.id), .logprob = token.logprob};
  for (const auto& [id, logprob] : token.top) told.top.push_back({text_of(id), logprob});
  return told;
}

// Tokens are sent together with their text: while the text is held back, so are they.
void Reply::add_piece(int choice, MessagePiece piece) {
  Choice& of = choices_[static_cast<size_t>(choice)];
  AnswerMessage& message = of.message;
  ReplyPart part{.choice = choice, .piece = std::move(piece), .text_offset = of.characters};
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
      message.calls.back().whole = part.piece.whole;
  }
  message.tokens.insert(message.tokens.end(), of.tokens.begin(), of.tokens.end());
  part.tokens = std::exchange(of.tokens, {});
  of.characters += count_characters(part.piece.text);
  if (options_.stream) write(form_->piece(part));
}

void Reply::take_token(const Event& event) {
  begin();
  if (!first_token_) first_token_ = event.at;
  if (options_.silent) return;
  Choice& of = choices_[static_cast<size_t>(event.choice)];
  for (const TokenLogprobs& token : event.logprobs) of.tokens.push_back(token_text(token));
  for (const MessagePiece& piece : event.pieces) add_piece(event.choice, piece);
}

void Reply::take_end(Event& event) {
  begin();
  const int choice = event.choice;
  Choice& of = choices_[static_cast<size_t>(choice)];
  if (options_.silent) event.answer = {.ids = {}, .text = {}, .end = AnswerEnd::kMaxTokens};
  of.message.end = event.answer.end;
  of.message.reasoning_tokens = event.answer.reasoning_tokens;
  of.message.stop_string = std::move(event.answer.stop_string);
  of.message.token_count = static_cast<int64_t>(event.answer.ids.size());
  usage_.completion_tokens += of.message.token_count;
  usage_.drafts += event.answer.drafts;
  usage_.audit += event.answer.audit;
  if (first_token_) {
    usage_.prompt_time = *first_token_ - options_.came;
    usage_.answer_time = event.at - *first_token_;
  }
  const std::vector<TokenText> rest = std::exchange(of.tokens, {});
  of.message.tokens.insert(of.message.tokens.end(), rest.begin(), rest.end());
  if (options_.stream) write(form_->end_choice(choice, of.message, rest));
  // Called before the client sees the end, and so before its next request.
  if (choice == 0) {
    event.answer.reasoning = of.message.reasoning;
    event.answer.content = of.message.content;
    event.answer.calls = of.message.calls;
    if (const Done done = std::exchange(done_, nullptr)) done(std::move(event.answer));
  }
  if (++ended_ < options_.choices) return;
  const bool cancelled = of.message.end == AnswerEnd::kCancelled;
  log_end(cancelled ? "cancelled" : finish_name(of.message), 200, event.at);
  finish();
}

// Before the client sees the end.
void Reply::log_end(const std::string& end, int status, Clock::time_point at) {
  if (options_.log == nullptr) return;
  const auto seconds = [](Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  };
  LoggedRequest logged = options_.logged;
  logged.status = status;
  logged.prompt_tokens = options_.prompt_tokens;
  logged.cached_tokens = usage_.cached_tokens;
  logged.recomputed_tokens = recomputed_;
  logged.completion_tokens = usage_.completion_tokens;
  logged.seconds = seconds(options_.came, at);
  logged.end = end;
  if (first_token_) {
    logged.first_token_seconds = seconds(options_.came, *first_token_);
    const auto later = static_cast<double>(usage_.completion_tokens - options_.choices);
    const double took = seconds(*first_token_, at);
    if (later > 0 && took > 0) logged.tokens_per_second = later / took;
  }
  options_.log->write(logged);
}

void Reply::finish() {
  over_ = true;
  std::vector<AnswerMessage> messages;
  for (Choice& choice : choices_) messages.push_back(std::move(choice.message));
  if (!options_.stream) return exchange_->send({.body = form_->whole(messages, usage_)});
  write(form_->end(messages, usage_));
  exchange_->end();
}

void Reply::take_error(const Event& event) {
  over_ = true;
  done_ = nullptr;
  const ApiError error = api_error_of(event.error, event.message);
  log_end(error.what(), error.status(), event.at);
  if (!options_.stream || !begun_) {
    return exchange_->send(error_response(error, form_->error_body(error)));
  }
  write(form_->error(error));
  exchange_->end();
}

void Reply::ping(std::chrono::milliseconds still) {
  const std::lock_guard lock(mutex_);
  if (options_.stream && !over_ && Clock::now() - written_ >= still) {
    begin();
    write(form_->ping());
  }
}

}  // namespace fasa::serve
