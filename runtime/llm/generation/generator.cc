#include "runtime/llm/generation/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "runtime/base/log.h"
#include "runtime/llm/generation/auto_chunk.h"
#include "runtime/llm/generation/drafted_step.h"
#include "runtime/llm/generation/open_drafts.h"
#include "runtime/llm/generation/open_prompt.h"
#include "runtime/llm/generation/owned_sequence.h"
#include "runtime/llm/generation/random_context.h"

namespace fasa {
namespace {

void check_positions(const ModelConfig& config, int64_t prompt, const GenerateOptions& options) {
  const int64_t needed = options.random_context + prompt + options.max_tokens;
  if (needed <= config.max_positions) return;
  const std::string message =
      fmt::format("{}prompt ({} tokens) + max_tokens ({}) = {} exceed the model's {} positions",
                  options.random_context > 0
                      ? fmt::format("random context ({} tokens) + ", options.random_context)
                      : "",
                  prompt, options.max_tokens, needed, config.max_positions);
  if (!options.allow_long) {
    throw UsageError(message + "; shorten them, or allow it with --allow-long");
  }
  log_warning(message + "; the model was not trained on such lengths");
}

void check(const ModelConfig& config, std::span<const int32_t> prompt,
           const GenerateOptions& options) {
  if (prompt.empty()) throw UsageError("the prompt is empty; give at least one token");
  options.answer().validate();
  if (options.prefill_chunk < 1 && options.prefill_chunk != kAutomaticChunk) {
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

// A time on the device's clock and on the wall clock.
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
        answer_(options.answer(), model.config().eos_ids, tokenizer, prompt),
        sequence_(runtime) {
    if (options.drafts == DraftKind::kMtp) mtp_.emplace(model, runtime.traits().row_dtype);
    drafts_ = open_drafts(options.answer(), prompt, 0, mtp_ ? &*mtp_ : nullptr);
  }

  GenerateResult run(std::span<const int32_t> prompt) {
    const auto total = static_cast<int64_t>(prompt.size());
    result_.prompt_tokens = total;
    const int64_t context = options_.random_context + total + options_.max_tokens;
    runtime_.set_rollback_tokens(sequence_.id(), 0);
    const bool behind_noise = options_.random_context > 0;
    if (behind_noise) {
      model_.reserve(1);
      runtime_.reserve(sequence_.id(), context, kRandomChunk);
    } else {
      choose_chunk(context);
      reserve(piece_, context);
    }
    if (drafts_) drafts_->reserve(total + options_.max_tokens);
    append_random_context(model_, runtime_, sequence_.id(), options_.random_context);
    const Instant start(model_);
    const std::span<const float> logits =
        behind_noise ? prefill(prompt, 1, StepMode::kDecode) : read(prompt, context);
    const Instant prefilled(model_);
    runtime_.reset_metrics();
    try {
      decode(logits);
    } catch (const Error& error) {
      result_.error = error.what();
      result_.error_kind = error.kind();
      show_rest();
    }
    finish_answer();
    finish(start, prefilled);
    return std::move(result_);
  }

 private:
  void choose_chunk(int64_t context) {
    const bool automatic = options_.prefill_chunk == kAutomaticChunk;
    const int chunk = automatic ? automatic_chunk(model_, runtime_, context, result_.prompt_tokens)
                                : options_.prefill_chunk;
    result_.prefill_chunk = chunk;
    piece_ = automatic ? std::min(chunk, kPieceTokens) : chunk;
  }

  void reserve(int step_tokens, int64_t context) {
    const auto of_prompt = [this](int tokens) {
      return static_cast<int>(std::min<int64_t>(tokens, result_.prompt_tokens));
    };
    model_.reserve(of_prompt(step_tokens + OpenPrompt::kFewRows));
    runtime_.reserve(sequence_.id(), context, of_prompt(step_tokens));
  }

  // Layer by layer; by steps if that cannot be, or memory is short.
  std::span<const float> read(std::span<const int32_t> prompt, int64_t context) {
    std::optional<OpenPrompt> open =
        OpenPrompt::open(model_, runtime_, sequence_.id(), prompt,
                         {.piece = piece_, .prompt = 2 * int64_t{piece_}, .drafts = drafts_.get()});
    if (!open) {
      if (result_.prefill_chunk > piece_) reserve(result_.prefill_chunk, context);
      return prefill(prompt, result_.prefill_chunk, StepMode::kPrefill);
    }
    result_.prefill_chunk = open->chunk();
    for (bool whole = false; !whole;) {
      whole = open->work();
      if (!options_.on_prefill) continue;
      options_.on_prefill(static_cast<int64_t>(open->done()), std::ssize(prompt));
    }
    return open->logits();
  }

  // Logits after the prompt, valid until the model's next step.
  std::span<const float> prefill(std::span<const int32_t> prompt, int chunk, StepMode mode) {
    const auto total = static_cast<int64_t>(prompt.size());
    std::span<const float> logits;
    for (int64_t done = 0; done < total;) {
      const int count = static_cast<int>(std::min<int64_t>(chunk, total - done));
      const StepSequence step[] = {{sequence_.id(), count, mode}};
      const bool last = done + count == total;
      float* const states = drafts_ ? drafts_->step_states(count) : nullptr;
      logits = model_.step(runtime_,
                           prompt.subspan(static_cast<size_t>(done), static_cast<size_t>(count)),
                           step, {.no_logits = !last, .states = states});
      if (drafts_) drafts_->computed(states, count);
      done += count;
      if (options_.on_prefill) options_.on_prefill(done, total);
    }
    return logits;
  }

  // The answer took its next token, or ended.
  void publish() {
    if (answer_.tokens().size() == shown_) return show_fresh();
    ++shown_;
    if (options_.on_token) options_.on_token(answer_.tokens().back(), answer_.fresh());
  }

  void decode(std::span<const float> logits) {
    const Instant begin(model_);
    DraftedSteps steps(model_, runtime_, sequence_.id(), answer_, options_.answer(),
                       std::move(drafts_));
    double before = 0;
    bool more = answer_.take(logits);
    publish();
    while (more) {
      // What a long chunk took is the hot rows' now.
      if (result_.decode_steps == 0) model_.shrink(kMinPrefillChunk);
      more = steps.step([this] { publish(); });
      const double after = Instant(model_).device_since(begin);
      result_.step_seconds.push_back(after - before);
      before = after;
      ++result_.decode_steps;
      result_.decoded_tokens += std::ssize(steps.kept());
    }
  }

  void show_fresh() {
    if (options_.on_rest && !answer_.fresh().empty()) options_.on_rest(answer_.fresh());
  }

  // Emits text that was held back when a step failed.
  void show_rest() {
    answer_.cancel();
    show_fresh();
  }

  void finish_answer() {
    result_.tokens = answer_.tokens();
    result_.text = answer_.text();
    result_.logprobs = answer_.logprobs();
    result_.drafts = answer_.drafts();
    result_.audit = answer_.audit();
    result_.end = result_.error ? AnswerEnd::kOpen : answer_.end();
    result_.stopped_on_eos = result_.end == AnswerEnd::kEndOfSequence;
  }

  // A failed device has no times to report.
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
  Answer answer_;
  OwnedSequence sequence_;
  std::optional<MtpCache> mtp_;
  std::unique_ptr<DraftSource> drafts_;  // until the answer begins
  GenerateResult result_;
  int piece_ = 0;     // tokens of a prompt's pieces
  size_t shown_ = 0;  // tokens of the answer
};

}  // namespace

GenerateResult generate(Model& model, Runtime& runtime, std::span<const int32_t> prompt,
                        const GenerateOptions& options, const text::Tokenizer* tokenizer) {
  check(model.config(), prompt, options);
  return Generation(model, runtime, prompt, options, tokenizer).run(prompt);
}

}  // namespace fasa
