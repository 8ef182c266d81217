#include "bindings/http/completions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <random>
#include <utility>

#include "bindings/http/session_title.h"
#include "runtime/text/token_bytes.h"

namespace fasa::serve {
namespace {

// Several threads, so that formatting one long answer does not delay the others.
constexpr size_t kFormatThreads = 2;

uint64_t drawn_number() {
  thread_local std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

SamplingChoice choice_of(const SamplingFields& fields) {
  SamplingChoice choice;
  const auto as_float = [](const std::optional<double>& value) {
    return value ? std::optional(static_cast<float>(*value)) : std::nullopt;
  };
  choice.temperature = as_float(fields.temperature);
  choice.top_p = as_float(fields.top_p);
  choice.min_p = as_float(fields.min_p);
  if (fields.top_k) choice.top_k = static_cast<int>(std::max<int64_t>(*fields.top_k, 0));
  choice.repetition_penalty = as_float(fields.repetition_penalty);
  if (fields.repetition_window) {
    choice.repetition_window =
        static_cast<int>(std::min<int64_t>(*fields.repetition_window, INT32_MAX));
  }
  choice.presence_penalty = as_float(fields.presence_penalty);
  choice.frequency_penalty = as_float(fields.frequency_penalty);
  return choice;
}

}  // namespace

Completions::Completions(const ServiceOptions& options, EngineLoop& engine,
                         const text::Tokenizer& tokenizer, const text::ChatTemplates* templates,
                         RequestLog& log)
    : options_(options),
      engine_(engine),
      tokenizer_(tokenizer),
      templates_(templates),
      answers_(templates, tokenizer),
      log_(log),
      known_(tokenizer),
      formatters_(kFormatThreads),
      pinger_([this] { ping_replies(); }) {
  for (Conversation& found : engine.take_found()) {
    for (const auto& record : found.records) records_.add(found.salt, record);
    if (found.text.empty()) continue;
    std::vector<int32_t> ids(found.log.ids().begin(), found.log.ids().end());
    ids.insert(ids.end(), found.ahead.begin(), found.ahead.end());
    known_.remember(
        KnownText(tokenizer, std::move(found.salt), std::move(found.text), std::move(ids)));
  }
}

Completions::~Completions() {
  {
    const std::lock_guard lock(replies_mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  pinger_.join();
  for (const auto& one : replies_) {
    if (const auto reply = one.lock()) reply->close();
  }
  formatters_.stop();
}

std::string Completions::template_source() const {
  return templates_ == nullptr ? "" : templates_->source("", true);
}

void Completions::check_model(const std::string& name) const {
  constexpr std::string_view kLatest = ":latest";  // Ollama's clients add it
  const bool latest = name == options_.model_name + std::string(kLatest);
  if (options_.any_model_name || name.empty() || latest || name == options_.model_name) return;
  throw ApiError(404, "not_found_error",
                 fmt::format("model: \"{}\" does not exist on this server; allowed: \"{}\"",
                             name.substr(0, 80), options_.model_name),
                 "model", "model_not_found");
}

void Completions::check_ids(std::span<const int32_t> ids, const char* field) const {
  if (ids.empty()) throw ApiError::bad_field(field, "the prompt is empty; give at least one token");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < options_.vocab_size) continue;
    throw ApiError::bad_field(
        fmt::format("{}[{}]", field, i),
        fmt::format("token {}; allowed: 0 to {}", ids[i], options_.vocab_size - 1));
  }
}

AnswerOptions Completions::answer_options(const CompletionFields& fields,
                                          size_t prompt_tokens) const {
  const int64_t room = options_.max_context - static_cast<int64_t>(prompt_tokens);
  AnswerOptions answer;
  const int64_t most = options_.max_tokens.value_or(room);
  answer.max_tokens = std::clamp<int64_t>(fields.sampling.max_tokens.value_or(most), 1, room);
  answer.reasoning_budget = options_.reasoning_budget;
  answer.sampling = choice_of(fields.sampling).over(options_.defaults);
  // OpenAI's default, if neither the request nor the model's file sets one.
  if (!fields.sampling.temperature && !options_.defaults.temperature) {
    answer.sampling.temperature = 1;
  }
  answer.sampling.seed = fields.sampling.seed.value_or(drawn_number());
  answer.sampling.logit_bias = fields.sampling.logit_bias;
  for (const auto& [id, bias] : answer.sampling.logit_bias) {
    if (id >= options_.vocab_size) {
      throw ApiError::bad_field(
          "logit_bias", fmt::format("token {}; allowed: 0 to {}", id, options_.vocab_size - 1));
    }
  }
  answer.audit_every = options_.audit_every;
  const std::string& prediction = fields.sampling.prediction;
  if (!prediction.empty()) {
    answer.prediction = tokenizer_.encode(prediction, text::EncodeOptions{.parse_special = false});
  }
  answer.drafts =
      fields.sampling.drafts.value_or(prediction.empty() ? options_.drafts : DraftKind::kLookup);
  if (answer.drafts == DraftKind::kMtp && options_.drafts != DraftKind::kMtp) {
    throw ApiError::bad_field("drafts",
                              "\"mtp\": this server did not load the model's head of multi-token "
                              "prediction; allowed: none, lookup, or mtp after --drafts mtp");
  }
  answer.stop = fields.sampling.stop;
  answer.stop_ids = fields.sampling.stop_token_ids;
  answer.ignore_eos = fields.sampling.ignore_eos;
  answer.min_tokens = fields.sampling.min_tokens;
  if (answer.min_tokens > answer.max_tokens && fields.sampling.max_tokens != 0) {
    throw ApiError::bad_field("min_tokens", fmt::format("{}; allowed: at most {}, the answer's "
                                                        "maximum",
                                                        answer.min_tokens, answer.max_tokens));
  }
  if (fields.logprobs) answer.logprobs = fields.top_logprobs;
  return answer;
}

PromptSetting Completions::prompt_setting() const {
  return {*templates_, answers_.chosen(), options_.now(), options_.template_variables};
}

void Completions::mark_borders(const ChatRequest& request, const text::ChatPrompt& prompt,
                               Generation& generation) const {
  if (!options_.marks_borders) return;
  const PromptBorders borders = prompt_borders(prompt, request, prompt_setting());
  const std::vector<int32_t>& ids = generation.prompts[0];
  const auto tokens = [&](size_t bytes) -> int64_t {
    if (bytes == 0) return 0;
    const auto rest = tokenizer_.encode(prompt.segments(bytes), false);
    const bool parts = !rest.empty() && rest.size() < ids.size() &&
                       tokenizer_.is_special(rest[0]) &&
                       std::equal(rest.rbegin(), rest.rend(), ids.rbegin());
    return parts ? std::ssize(ids) - std::ssize(rest)
                 : text::tokens_before(tokenizer_, prompt.text(), ids, bytes);
  };
  generation.history_tokens = tokens(borders.history);
  generation.user_tokens =
      borders.user == borders.history ? generation.history_tokens : tokens(borders.user);
}

ReplyHead Completions::reply_head(const char* prefix) const {
  return {.id = fmt::format("{}{:016x}", prefix, drawn_number()),
          .created = static_cast<int64_t>(std::time(nullptr)),
          .model = options_.model_name};
}

Generation Completions::of_chat(const Call& call, const ChatRequest& request) {
  check_model(request.common.model);
  if (templates_ == nullptr) {
    throw ApiError(400, "invalid_request_error",
                   "this model has no chat template; use /v1/completions",
                   request.common.prompt_field, "no_chat_template");
  }
  if (!request.tools.skipped.empty()) {
    call.exchange->add_header("X-Ignored-Tools", header_list(request.tools.skipped));
  }
  const text::ChatPrompt prompt = chat_prompt(request, prompt_setting());
  auto reading = answers_.reading(request.tools, prompt.text());
  auto grammar = answers_.grammar(request.tools, request.format, reading.get());
  Generation generation{.fields = request.common,
                        .prompts = {},
                        .prompt = known_.encode(call.salt, request, prompt, prompt_setting()),
                        .title = chat_title(request.context["messages"]),
                        .reading = std::move(reading),
                        .grammar = std::move(grammar),
                        .form = nullptr};
  generation.prompts.push_back(std::move(generation.prompt.ids));
  mark_borders(request, prompt, generation);
  return generation;
}

Generation Completions::of_text(const CompletionRequest& request) {
  check_model(request.common.model);
  std::vector<std::vector<int32_t>> prompts;
  std::string title;
  for (const CompletionPrompt& prompt : request.prompts) {
    const auto* const text = std::get_if<std::string>(&prompt);
    if (text != nullptr && title.empty()) title = title_of(*text);
    prompts.push_back(text == nullptr
                          ? std::get<std::vector<int32_t>>(prompt)
                          : tokenizer_.encode(*text, text::EncodeOptions{.add_special = true}));
  }
  AnswerGrammar grammar = answers_.grammar({}, request.format, nullptr);
  return {.fields = request.common,
          .prompts = std::move(prompts),
          .title = std::move(title),
          .grammar = std::move(grammar),
          .form = nullptr};
}

// Retry-After: the mean queueing time of all requests so far.
ApiError Completions::refusal() const {
  constexpr double kMin = 1, kMax = 60;  // seconds
  if (draining_) {
    ApiError error(503, "server_error", "this server is shutting down", "", "shutting_down");
    error.retry_after = static_cast<int>(kMax);
    return error;
  }
  const EngineStatus status = engine_.status();
  const EngineOptions& limits = engine_.options();
  const auto& waited = status.queue_seconds;
  const double mean = waited.total == 0 ? 0 : waited.sum / static_cast<double>(waited.total);
  ApiError error(
      429, "rate_limit_error",
      fmt::format("{} requests are waiting and {} are running; allowed: {} waiting (--max-waiting) "
                  "and {} running (--max-sequences); try again later",
                  status.waiting, status.running, limits.max_waiting, limits.max_sequences),
      "", "queue_full");
  error.retry_after = static_cast<int>(std::ceil(std::clamp(mean, kMin, kMax)));
  return error;
}

// In the words that clients of the API look for, to shorten the conversation and go on.
void Completions::refuse_long_prompt(const Call& call, const Generation& generation,
                                     size_t tokens) {
  const ApiError error =
      ApiError::long_prompt(call.request.path, static_cast<int64_t>(tokens), options_.max_context,
                            generation.fields.prompt_field);
  if (!generation.fields.stream || !generation.form->streams_long_prompts()) throw error;
  call.exchange->begin({.content_type = generation.form->content_type()});
  call.exchange->write(
      generation.form->begin(1, {.prompt_tokens = std::ssize(generation.prompts[0])}) +
      generation.form->error(error));
  call.exchange->end();
  log_.write({.id = call.id,
              .path = call.request.path,
              .prompt_tokens = static_cast<int64_t>(tokens),
              .end = error.what()});
}

void Completions::start(Call& call, Generation generation) {
  const CompletionFields& fields = generation.fields;
  for (const std::vector<int32_t>& prompt : generation.prompts) {
    if (std::ssize(prompt) < options_.max_context) continue;
    check_ids(prompt, fields.prompt_field);
    return refuse_long_prompt(call, generation, prompt.size());
  }
  std::vector<GenerationRequest> requests;
  int64_t prompt_tokens = 0;
  for (std::vector<int32_t>& prompt : generation.prompts) {
    check_ids(prompt, fields.prompt_field);
    prompt_tokens += std::ssize(prompt);
    GenerationRequest request{.salt = call.salt,
                              .prompt = std::move(prompt),
                              .history_tokens = generation.history_tokens,
                              .user_tokens = generation.user_tokens,
                              .parted_tokens = generation.prompt.parted_tokens,
                              .parting = generation.prompt.parting,
                              .text = generation.prompt.text,
                              .title = generation.title,
                              .choices = fields.choices};
    request.answer = answer_options(fields, request.prompt.size());
    answers_.apply(request.answer, generation.reading, generation.grammar);
    requests.push_back(std::move(request));
  }
  if (!generation.grammar.ignored.empty()) {
    call.exchange->add_header("X-Ignored-Keywords", header_list(generation.grammar.ignored));
  }
  ReplyOptions options{.stream = fields.stream,
                       .logprobs = fields.logprobs,
                       .silent = fields.sampling.max_tokens == 0,
                       .choices = fields.choices * static_cast<int>(requests.size()),
                       .prompt_tokens = prompt_tokens,
                       .logged = {.id = call.id, .path = call.request.path},
                       .log = &log_,
                       .came = call.came};
  // The answer's ids match its text, unless a stop string cut it.
  const auto remember = [this, salt = call.salt, prompt = std::move(generation.prompt),
                         ids = requests[0].prompt,
                         ended = std::move(generation.ended)](const EndedAnswer& answer) mutable {
    prompt.ids = std::move(ids);
    prompt.ids.insert(prompt.ids.end(), answer.ids.begin(), answer.ids.end());
    if (ended) ended(prompt.ids);
    if (prompt.text.empty() || answer.end == AnswerEnd::kStopString) return;
    known_.remember(std::move(salt), std::move(prompt), answer);
  };
  const auto reply = std::make_shared<Reply>(std::move(options), std::move(generation.form),
                                             tokenizer_, call.exchange, formatters_, remember);
  const std::vector<uint64_t> numbers = submit(std::move(requests), reply);
  {
    const std::lock_guard lock(replies_mutex_);
    replies_.push_back(reply);
  }
  // Runs at once if the client has already disconnected.
  call.exchange->on_gone([this, numbers] {
    for (const uint64_t number : numbers) engine_.cancel(number);
  });
}

// All or none.
std::vector<uint64_t> Completions::submit(std::vector<GenerationRequest> requests,
                                          const std::shared_ptr<Reply>& reply) {
  const auto sum = std::make_shared<ReplyPrompt::Sum>();
  std::vector<uint64_t> numbers;
  int first_choice = 0;
  for (GenerationRequest& request : requests) {
    const int choices = request.choices;
    if (requests.size() == 1) {
      request.observer = reply;
    } else {
      request.observer = std::make_shared<ReplyPrompt>(reply, sum, first_choice);
    }
    first_choice += choices;
    const auto number = engine_.submit(std::move(request));
    if (number) {
      numbers.push_back(*number);
      continue;
    }
    reply->close();
    for (const uint64_t submitted : numbers) engine_.cancel(submitted);
    throw refusal();
  }
  return numbers;
}

void Completions::ping_replies() {
  constexpr std::chrono::milliseconds kLook{1000};
  std::unique_lock lock(replies_mutex_);
  while (!stopped_.wait_for(lock, kLook, [this] { return stopping_; })) {
    std::vector<std::shared_ptr<Reply>> open;
    replies_.remove_if([&](const std::weak_ptr<Reply>& reply) {
      open.push_back(reply.lock());
      return open.back() == nullptr;
    });
    lock.unlock();
    for (const auto& reply : open) {
      if (reply != nullptr) reply->ping(options_.ping_after);
    }
    open.clear();
    lock.lock();
  }
}

}  // namespace fasa::serve
