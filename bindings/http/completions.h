// From a request of any API to the engine, and from there to its reply.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bindings/http/api/chat_prompt.h"
#include "bindings/http/api/openai_request.h"
#include "bindings/http/call.h"
#include "bindings/http/job_pool.h"
#include "bindings/http/known_prompts.h"
#include "bindings/http/model_answers.h"
#include "bindings/http/record_index.h"
#include "bindings/http/reply.h"
#include "bindings/http/reply_form.h"
#include "bindings/http/service_options.h"
#include "runtime/serve/engine_loop.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"

namespace fasa::serve {

// What the engine generates, and the form of the reply.
struct Generation {
  const CompletionFields& fields;
  std::vector<std::vector<int32_t>> prompts;    // one but for completions of several prompts
  EncodedPrompt prompt = {};                    // for a chat; its ids are those of `prompts`
  int64_t history_tokens = 0, user_tokens = 0;  // see GenerationRequest
  std::string title = {};                       // of the conversation
  std::shared_ptr<const text::AnswerReading> reading = {};  // for a chat
  AnswerGrammar grammar = {};
  std::unique_ptr<ReplyForm> form;
  // Called before `form` ends, with the tokens of the first prompt and its answer. May be null.
  std::function<void(std::vector<int32_t>)> ended = nullptr;
};

// Thread-safe.
class Completions {
 public:
  // `templates` may be null. All outlive it.
  Completions(const ServiceOptions& options, EngineLoop& engine, const text::Tokenizer& tokenizer,
              const text::ChatTemplates* templates, RequestLog& log);
  ~Completions();
  Completions(const Completions&) = delete;  // its threads refer to it
  Completions& operator=(const Completions&) = delete;

  const ServiceOptions& options() const { return options_; }
  EngineLoop& engine() { return engine_; }
  const text::Tokenizer& tokenizer() const { return tokenizer_; }
  RecordIndex& records() { return records_; }
  bool has_chats() const { return templates_ != nullptr; }
  std::string template_source() const;  // "": none
  const ModelAnswers& answers() const { return answers_; }

  // Throws ApiError: there is no such model.
  void check_model(const std::string& name) const;
  // Fill in everything except the form. Throw ApiError.
  Generation of_chat(const Call& call, const ChatRequest& request);
  Generation of_text(const CompletionRequest& request);
  ReplyHead reply_head(const char* prefix) const;
  // Throws ApiError if the engine takes no more.
  void start(Call& call, Generation generation);
  // Refuses further requests as those of a server that shuts down.
  void drain() { draining_ = true; }
  bool draining() const { return draining_; }

 private:
  AnswerOptions answer_options(const CompletionFields& fields, size_t prompt_tokens) const;
  PromptSetting prompt_setting() const;
  void mark_borders(const ChatRequest& request, const text::ChatPrompt& prompt,
                    Generation& generation) const;
  void check_ids(std::span<const int32_t> ids, const char* field) const;
  ApiError refusal() const;
  std::vector<uint64_t> submit(std::vector<GenerationRequest> requests,
                               const std::shared_ptr<Reply>& reply);
  void refuse_long_prompt(const Call& call, const Generation& generation, size_t tokens);
  void ping_replies();

  const ServiceOptions& options_;
  EngineLoop& engine_;
  const text::Tokenizer& tokenizer_;
  const text::ChatTemplates* const templates_;
  ModelAnswers answers_;
  RequestLog& log_;
  std::atomic<bool> draining_{false};
  KnownPrompts known_;
  RecordIndex records_;
  std::mutex replies_mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  std::list<std::weak_ptr<Reply>> replies_;
  JobPool formatters_;  // of answers
  std::thread pinger_;
};

}  // namespace fasa::serve
