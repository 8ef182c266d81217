// Chat and text completions: from the request's JSON to the engine.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <random>
#include <utility>

#include "bindings/http/call.h"
#include "bindings/http/generation.h"
#include "bindings/http/messages_request.h"
#include "bindings/http/ollama_request.h"

namespace fasa::serve {
namespace {

uint64_t drawn_number() {
  thread_local std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// At most kMost of them, as a header's value.
std::string header_list(const std::vector<std::string>& names) {
  constexpr size_t kMost = 20, kBytes = 100;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    list += (i == 0 ? "" : ", ") + names[i].substr(0, kBytes);
  }
  for (char& c : list) {
    if (c < ' ' || c > '~') c = '?';
  }
  return names.size() > kMost ? list + ", ..." : list;
}

// The first line that is not blank, cut to kMost bytes between characters.
std::string title_of(std::string_view text) {
  constexpr size_t kMost = 80;
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  text = text.substr(0, text.find_first_of("\r\n"));
  if (text.size() <= kMost) return std::string(text);
  size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end));
}

// The beginning of what the user said first.
std::string chat_title(const Json& messages) {
  for (const Json& message : messages) {
    if (message.value("role", "") == "user") return title_of(message.value("content", ""));
  }
  return "";
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
  choice.presence_penalty = as_float(fields.presence_penalty);
  choice.frequency_penalty = as_float(fields.frequency_penalty);
  return choice;
}

}  // namespace

void Service::check_model(const CompletionFields& fields) const {
  if (options_.any_model_name || fields.model.empty() || fields.model == options_.model_name)
    return;
  throw ApiError(404, "not_found_error",
                 fmt::format("model: \"{}\" does not exist on this server; allowed: \"{}\"",
                             fields.model.substr(0, 80), options_.model_name),
                 "model", "model_not_found");
}

void Service::check_ids(std::span<const int32_t> ids, const char* field) const {
  if (ids.empty()) throw ApiError::bad_field(field, "the prompt is empty; give at least one token");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < options_.vocab_size) continue;
    throw ApiError::bad_field(
        fmt::format("{}[{}]", field, i),
        fmt::format("token {}; allowed: 0 to {}", ids[i], options_.vocab_size - 1));
  }
}

AnswerOptions Service::answer_options(const CompletionFields& fields, size_t prompt_tokens) const {
  const int64_t room = options_.max_context - static_cast<int64_t>(prompt_tokens);
  if (room < 1) {
    throw ApiError(400, "invalid_request_error",
                   fmt::format("This model's maximum context length is {} tokens. However, you "
                               "requested {} tokens in the prompt alone. Please shorten it.",
                               options_.max_context, prompt_tokens),
                   fields.prompt_field, "context_length_exceeded");
  }
  AnswerOptions answer;
  answer.max_tokens = std::min(room, fields.sampling.max_tokens.value_or(room));
  answer.sampling = choice_of(fields.sampling).over(options_.defaults);
  // OpenAI's default, if neither the request nor the model's file sets one.
  if (!fields.sampling.temperature && !options_.defaults.temperature) {
    answer.sampling.temperature = 1;
  }
  answer.sampling.seed = fields.sampling.seed.value_or(drawn_number());
  for (const auto& [id, bias] : fields.sampling.logit_bias) {
    answer.sampling.logit_bias.emplace_back(id, bias);
    if (id >= options_.vocab_size) {
      throw ApiError::bad_field(
          "logit_bias", fmt::format("token {}; allowed: 0 to {}", id, options_.vocab_size - 1));
    }
  }
  answer.stop = fields.sampling.stop;
  answer.stop_ids = fields.sampling.stop_token_ids;
  answer.ignore_eos = fields.sampling.ignore_eos;
  answer.min_tokens = fields.sampling.min_tokens;
  if (answer.min_tokens > answer.max_tokens) {
    throw ApiError::bad_field("min_tokens", fmt::format("{}; allowed: at most {}, the answer's "
                                                        "maximum",
                                                        answer.min_tokens, answer.max_tokens));
  }
  if (fields.logprobs) answer.logprobs = fields.top_logprobs;
  return answer;
}

// As far as the prompt agrees with a known text, up to a control token, that text's ids are used.
std::vector<int32_t> Service::encode(const std::string& salt, const text::ChatPrompt& prompt) {
  std::vector<int32_t> ids;
  size_t begin = 0;
  {
    const std::lock_guard lock(known_mutex_);
    const KnownTexts::Beginning known = known_.find(salt, prompt.text());
    ids.assign(known.ids.begin(), known.ids.end());
    begin = known.bytes;
  }
  if (begin > 0) {
    const auto rest = tokenizer_.encode(prompt.segments(begin), false);
    if (!rest.empty() && tokenizer_.is_special(rest[0])) {
      ids.insert(ids.end(), rest.begin(), rest.end());
      return ids;
    }
  }
  return tokenizer_.encode(prompt.segments(), false);
}

ReplyHead Service::reply_head(const char* prefix) const {
  return {.id = fmt::format("{}{:016x}", prefix, drawn_number()),
          .created = static_cast<int64_t>(std::time(nullptr)),
          .model = options_.model_name};
}

// Fills in everything except the form.
Service::Generation Service::chat_generation(const Call& call, const ChatRequest& request) {
  check_model(request.common);
  const text::ChatPrompt prompt =
      render(answers_.context(request.context), request.common.prompt_field);
  auto reading = answers_.reading(request.tools, prompt.text());
  auto grammar = answers_.grammar(request.tools, request.format, reading.get());
  return {.fields = request.common,
          .prompts = {encode(call.salt, prompt)},
          .text = prompt.text(),
          .title = chat_title(request.context["messages"]),
          .reading = std::move(reading),
          .grammar = std::move(grammar),
          .form = nullptr};
}

void Service::chat(Call& call) {
  const ChatRequest request = read_chat_request(parse_body(call.request.body));
  Generation generation = chat_generation(call, request);
  generation.form = make_completion_form(reply_head("chatcmpl-"), ReplyKind::kChat, request.common);
  take_slot(call, generation);
  start(call, std::move(generation));
}

void Service::chat_ollama(Call& call) {
  const ChatRequest request = read_ollama_chat(parse_body(call.request.body));
  Generation generation = chat_generation(call, request);
  generation.form = make_ollama_form(reply_head("chatcmpl-"), true);
  start(call, std::move(generation));
}

void Service::generate_ollama(Call& call) {
  const Json body = parse_body(call.request.body);
  if (templates_ == nullptr || is_raw_prompt(body)) {
    const CompletionRequest request = read_ollama_raw_prompt(body);
    Generation generation = text_generation(request);
    generation.form = make_ollama_form(reply_head("cmpl-"), false);
    return start(call, std::move(generation));
  }
  const ChatRequest request = read_ollama_prompt(body);
  Generation generation = chat_generation(call, request);
  generation.form = make_ollama_form(reply_head("cmpl-"), false);
  start(call, std::move(generation));
}

void Service::converse(Call& call) {
  const ChatRequest request = read_messages_request(parse_body(call.request.body), false);
  Generation generation = chat_generation(call, request);
  generation.form = make_messages_form(reply_head("msg_"), std::ssize(generation.prompts[0]));
  start(call, std::move(generation));
}

void Service::count_messages(Call& call) {
  const ChatRequest request = read_messages_request(parse_body(call.request.body), true);
  const Json counted = {{"input_tokens", chat_generation(call, request).prompts[0].size()}};
  call.exchange->send({.body = reply_text(counted)});
}

text::ChatPrompt Service::render(const Json& context, const char* prompt_field) const {
  if (templates_ == nullptr) {
    throw ApiError(400, "invalid_request_error",
                   "this model has no chat template; use /v1/completions", prompt_field,
                   "no_chat_template");
  }
  jinja::Context read = jinja::parse_context(context.dump(), "the request");
  read.now = options_.now();
  return templates_->render(std::move(read));
}

void Service::complete(Call& call) {
  const CompletionRequest request = read_completion_request(parse_body(call.request.body));
  Generation generation = text_generation(request);
  generation.form = make_completion_form(reply_head("cmpl-"), ReplyKind::kText, request.common);
  take_slot(call, generation);
  start(call, std::move(generation));
}

// Fills in everything except the form.
Service::Generation Service::text_generation(const CompletionRequest& request) {
  check_model(request.common);
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
ApiError Service::refusal() const {
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

void Service::start(Call& call, Generation generation) {
  const CompletionFields& fields = generation.fields;
  std::vector<GenerationRequest> requests;
  int64_t prompt_tokens = 0;
  for (std::vector<int32_t>& prompt : generation.prompts) {
    check_ids(prompt, fields.prompt_field);
    prompt_tokens += std::ssize(prompt);
    GenerationRequest request{.salt = call.salt,
                              .prompt = std::move(prompt),
                              .text = generation.text,
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
                       .choices = fields.choices * static_cast<int>(requests.size()),
                       .prompt_tokens = prompt_tokens,
                       .logged = {.id = call.id, .path = call.request.path},
                       .log = &log_,
                       .came = call.came};
  // The answer's ids match its text, unless a stop string cut it.
  const auto remember = [this, salt = call.salt, text = std::move(generation.text),
                         ids = requests[0].prompt,
                         ended = std::move(generation.ended)](const EndedAnswer& answer) mutable {
    ids.insert(ids.end(), answer.ids.begin(), answer.ids.end());
    if (ended) ended(ids);
    if (text.empty() || answer.end == AnswerEnd::kStopString) return;
    const std::lock_guard lock(known_mutex_);
    known_.remember(std::move(salt), text + answer.text, std::move(ids));
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
std::vector<uint64_t> Service::submit(std::vector<GenerationRequest> requests,
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

}  // namespace fasa::serve
