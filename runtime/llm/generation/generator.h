// Generates one sequence: prefills the prompt in chunks, then decodes token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/api/prefill_chunk.h"
#include "runtime/api/sequences/runtime.h"
#include "runtime/base/error.h"
#include "runtime/llm/compute/model.h"
#include "runtime/llm/generation/answer.h"
#include "runtime/text/tokenizer.h"

namespace fasa {

struct GenerateOptions {
  int64_t max_tokens = 128;
  int prefill_chunk = kMinPrefillChunk;  // or kAutomaticChunk
  Sampling sampling = {};
  std::vector<std::string> stop = {};  // see AnswerOptions, as logprobs
  std::optional<int> logprobs = {};
  DraftKind drafts = DraftKind::kNone;
  std::optional<int> audit_every = 0;  // see Audit; 0: no comparison
  // Tokens of random context before the prompt (random_context.h), for measurements. The prompt is
  // then decoded token by token.
  int64_t random_context = 0;
  bool allow_long = false;  // prompts beyond the model's positions: a warning instead of an error
  std::function<void(int64_t done, int64_t total)> on_prefill = {};
  // `text`: the complete characters that `id` makes final; "" while a character is incomplete or a
  // stop string may have begun.
  std::function<void(int32_t id, std::string_view text)> on_token = {};
  // Text that was held back until the end, if any.
  std::function<void(std::string_view text)> on_rest = {};

  AnswerOptions answer() const {
    return {max_tokens, sampling, stop, logprobs, drafts, {}, audit_every, {}, {}};
  }
};

struct GenerateResult {
  std::vector<int32_t> tokens;  // generated, the end-of-sequence id left out
  std::string text;             // text of the tokens, without the prompt; "" without a tokenizer
  int64_t prompt_tokens = 0;
  int prefill_chunk = 0;     // tokens of the prompt's steps, but the last
  int64_t cache_tokens = 0;  // in the KV cache at the end
  // Seconds on the device's clock (virtual on the emulated device); wall time is separate.
  double prefill_seconds = 0;
  double decode_seconds = 0;
  double prefill_wall_seconds = 0;
  double decode_wall_seconds = 0;
  int64_t decode_steps = 0;
  int64_t decoded_tokens = 0;  // more than steps where drafts were right
  Answer::DraftCounts drafts;
  AuditCounts audit;
  std::vector<double> step_seconds;  // each decode step, on the device's clock
  AnswerEnd end = AnswerEnd::kOpen;  // kOpen if an error ended it
  bool stopped_on_eos = false;
  std::vector<TokenLogprobs> logprobs;  // one per token, if requested
  KvMemory memory;                      // after the last token
  // Set if a budget or device error stopped the generation; tokens so far are kept.
  std::optional<std::string> error;
  std::optional<ErrorKind> error_kind;
};

// Reserves memory for prompt + max_tokens before the first token, prefills the prompt in chunks,
// decodes until max_tokens, an end-of-sequence id or a stop string, then frees the sequence.
// `tokenizer` may be null: the result then has no text. Resets the metrics of
// `runtime` before the first decode step. Throws UsageError (empty prompt, ids, positions, options)
// and BudgetError (before the first token).
GenerateResult generate(Model& model, Runtime& runtime, std::span<const int32_t> prompt,
                        const GenerateOptions& options, const text::Tokenizer* tokenizer);

}  // namespace fasa
