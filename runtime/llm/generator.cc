#include "runtime/llm/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "runtime/base/log.h"
#include "runtime/llm/owned_sequence.h"
#include "runtime/text/continuation.h"

namespace fasa {
namespace {

void check_positions(const ModelConfig& config, int64_t prompt, const GenerateOptions& options) {
  const int64_t needed = prompt + options.max_tokens;
  if (needed <= config.max_positions) return;
  const std::string message =
      fmt::format("prompt ({} tokens) + max_tokens ({}) = {} go beyond the model's {} positions",
                  prompt, options.max_tokens, needed, config.max_positions);
  if (!options.allow_long) {
    throw UsageError(message + "; shorten them, or allow it with --allow-long");
  }
  log_warning(message + ": it was not trained there");
}

void check(const ModelConfig& config, std::span<const int32_t> prompt,
           const GenerateOptions& options) {
  if (prompt.empty()) throw UsageError("the prompt is empty; allowed: one token or more");
  if (options.max_tokens < 1) {
    throw UsageError(fmt::format("max_tokens = {}; allowed: 1 or more", options.max_tokens));
  }
  if (options.prefill_chunk < 1) {
    throw UsageError(fmt::format("prefill_chunk = {}; allowed: 1 or more", options.prefill_chunk));
  }
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || prompt[i] >= config.vocab_size) {
      throw UsageError(
          fmt::format("prompt token {} has id {}; allowed: 0 to {}, the model's "
                      "vocabulary",
                      i, prompt[i], config.vocab_size - 1));
    }
  }
  check_positions(config, static_cast<int64_t>(prompt.size()), options);
}

// A point in time on both clocks.
class Instant {
 public:
  explicit Instant(Model& model)
      : device_(model.device()),
        event_(device_.create_event()),
        wall_(std::chrono::steady_clock::now()) {
    device_.record(event_.view(), model.stream());
  }
  double wall_since(const Instant& earlier) const {
    return std::chrono::duration<double>(wall_ - earlier.wall_).count();
  }
  double device_since(const Instant& earlier) const {
    if (!device_.virtual_clock()) return wall_since(earlier);
    device_.synchronize(event_.view());
    device_.synchronize(earlier.event_.view());
    return device_.seconds_at(event_.view()) - device_.seconds_at(earlier.event_.view());
  }

 private:
  Device& device_;
  Event event_;
  std::chrono::steady_clock::time_point wall_;
};

class Generation {
 public:
  Generation(Model& model, Runtime& runtime, std::span<const int32_t> prompt,
             const GenerateOptions& options, const text::Tokenizer* tokenizer)
      : model_(model),
        runtime_(runtime),
        options_(options),
        sampler_(options.sampling),
        sequence_(runtime) {
    if (tokenizer != nullptr) continuation_.emplace(*tokenizer, prompt);
  }

  GenerateResult run(std::span<const int32_t> prompt) {
    const auto total = static_cast<int64_t>(prompt.size());
    const int chunk = static_cast<int>(std::min<int64_t>(options_.prefill_chunk, total));
    result_.prompt_tokens = total;
    model_.reserve(chunk);
    estimate_queries();
    runtime_.reserve(sequence_.id(), total + options_.max_tokens, chunk);
    const Instant start(model_);
    const int32_t first = prefill(prompt, chunk);
    const Instant prefilled(model_);
    runtime_.reset_metrics();
    try {
      decode(first);
    } catch (const Error& error) {
      result_.error = error.what();
      result_.error_kind = error.kind();
    }
    finish_text();
    finish(start, prefilled);
    return std::move(result_);
  }

 private:
  // Where the settings fetch ahead by query, the model says what later queries will be.
  void estimate_queries() {
    const int ahead = runtime_.query_ahead();
    if (ahead == 0) return;
    model_.reserve_estimates(1, ahead);
    runtime_.set_query_source(model_.query_source());
  }

  int32_t prefill(std::span<const int32_t> prompt, int chunk) {
    const auto total = static_cast<int64_t>(prompt.size());
    int32_t token = 0;
    for (int64_t done = 0; done < total;) {
      const int count = static_cast<int>(std::min<int64_t>(chunk, total - done));
      const StepSequence step[] = {{sequence_.id(), count, StepMode::kPrefill}};
      const bool last = done + count == total;
      const auto logits = model_.step(
          runtime_, prompt.subspan(static_cast<size_t>(done), static_cast<size_t>(count)), step,
          {.no_logits = !last});
      if (last) token = sampler_.next(logits);
      done += count;
      if (options_.on_prefill) options_.on_prefill(done, total);
    }
    return token;
  }

  // Takes the token that was sampled; false where it ends the text.
  bool take(int32_t token) {
    if (model_.config().is_eos(token)) {
      result_.stopped_on_eos = true;
      return false;
    }
    result_.tokens.push_back(token);
    const std::string text = continuation_ ? continuation_->push(token) : "";
    result_.text += text;
    if (options_.on_token) options_.on_token(token, text);
    return static_cast<int64_t>(result_.tokens.size()) < options_.max_tokens;
  }

  void decode(int32_t token) {
    const StepSequence step[] = {{sequence_.id(), 1, StepMode::kDecode}};
    const Instant begin(model_);
    double before = 0;
    while (take(token)) {
      const auto logits = model_.step(runtime_, {&token, 1}, step);
      const double after = Instant(model_).device_since(begin);
      result_.step_seconds.push_back(after - before);
      before = after;
      token = sampler_.next(logits);
      ++result_.decode_steps;
    }
  }

  void finish_text() {
    const std::string rest = continuation_ ? continuation_->finish() : "";
    result_.text += rest;
    if (options_.on_rest && !rest.empty()) options_.on_rest(rest);
  }

  // A device that failed has no times to tell.
  void finish(const Instant& start, const Instant& prefilled) {
    result_.memory = runtime_.memory();
    result_.cache_tokens = runtime_.length(sequence_.id());
    if (result_.error_kind == ErrorKind::kDevice) return;
    const Instant end(model_);
    result_.prefill_wall_seconds = prefilled.wall_since(start);
    result_.decode_wall_seconds = end.wall_since(prefilled);
    result_.prefill_seconds = prefilled.device_since(start);
    result_.decode_seconds = end.device_since(prefilled);
  }

  Model& model_;
  Runtime& runtime_;
  const GenerateOptions& options_;
  std::optional<text::Continuation> continuation_;
  Sampler sampler_;
  OwnedSequence sequence_;
  GenerateResult result_;
};

}  // namespace

GenerateResult generate(Model& model, Runtime& runtime, std::span<const int32_t> prompt,
                        const GenerateOptions& options, const text::Tokenizer* tokenizer) {
  check(model.config(), prompt, options);
  return Generation(model, runtime, prompt, options, tokenizer).run(prompt);
}

}  // namespace fasa
