// One choice of a request: active, or waiting.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/api/prefill_chunk.h"
#include "runtime/api/sequences/runtime.h"
#include "runtime/base/error.h"
#include "runtime/llm/generation/answer.h"
#include "runtime/llm/generation/audit.h"
#include "runtime/llm/generation/draft_source.h"
#include "runtime/llm/generation/token_log.h"
#include "runtime/serve/generation_request.h"
#include "runtime/serve/prefix_cache.h"
#include "runtime/serve/resuming.h"

namespace fasa::serve {

// Used by the loop's thread only.
struct ActiveChoice {
  struct Failure {
    ErrorKind kind;
    std::string message;
  };

  uint64_t id = 0;
  int choice = 0;
  GenerationRequest request;
  std::unique_ptr<Answer> answer;
  std::vector<int32_t> wanted;  // tokens that must be in the cache before `next`
  TokenLog known;               // how the first of them were computed before
  // Whether the remaining ones come by decode steps; none: not admitted yet.
  std::optional<bool> decodes_turn;
  std::optional<int32_t> next;          // sampled, not yet in the cache
  std::unique_ptr<DraftSource> drafts;  // of its text so far; null: none yet
  std::optional<Audit> audit;
  std::optional<SequenceId> sequence;
  TokenLog log;                      // the tokens that the sequence holds
  std::optional<Resuming> resuming;  // set while tokens are read from disk
  bool stops_at_marks = false;       // a step ends where the next prompt may part
  bool lacks_rows = false;           // it prefills, and some rows are on disk only
  bool lacks_memory = false;         // it waits until a session is evicted
  int64_t cached = 0;
  double owed = 0;  // see PromptTurns
  // Tokens of its chunks in PromptReader: half of a chunk that lost its memory, and as many more as
  // were read since.
  int chunk_limit = kMaxChunkTokens;
  bool placed_before = false;
  bool finished = false;
  std::optional<Failure> failure;  // set if the choice failed
  std::chrono::steady_clock::time_point submitted, last_token;

  bool placed() const { return sequence.has_value(); }
  bool runs() const { return placed() && !finished && !lacks_memory; }
  bool reads() const { return runs() && (resuming || lacks_rows); }  // from disk
  bool computes() const { return runs() && !resuming && !lacks_rows; }
  bool at_prompt() const { return log.size() < static_cast<int64_t>(wanted.size()); }
  StepMode mode() const {
    const bool decodes = !at_prompt() || prompt_mode(log.size()) == StepMode::kDecode;
    return decodes ? StepMode::kDecode : StepMode::kPrefill;
  }
  // How a token of `wanted` is computed.
  StepMode prompt_mode(int64_t position) const {
    const bool decodes = known.computed(position, turn_computed()) == Computed::kDecode;
    return decodes ? StepMode::kDecode : StepMode::kPrefill;
  }
  Computed turn_computed() const {
    return decodes_turn.value_or(false) ? Computed::kDecode : Computed::kPrefill;
  }
  int32_t token(int64_t position) const {
    return position < static_cast<int64_t>(wanted.size()) ? wanted[static_cast<size_t>(position)]
                                                          : *next;
  }
  int64_t prompt_left() const { return std::ssize(wanted) - log.size(); }
  // Tokens of `wanted` that the next step may take by prefill, and by decoding.
  int64_t prefill_left() const { return left_as(StepMode::kPrefill); }
  int64_t decode_left() const { return left_as(StepMode::kDecode); }
  // True if all of `wanted` from `position` on is decoded.
  bool decodes_from(int64_t position) const {
    return position >= std::ssize(wanted) ||
           (prompt_mode(position) == StepMode::kDecode && run_end(position) == std::ssize(wanted));
  }
  int64_t run_end(int64_t position) const {
    return known.run_end(position, std::ssize(wanted), turn_computed());
  }
  int64_t left_as(StepMode mode) const {
    if (!at_prompt() || prompt_mode(log.size()) != mode) return 0;
    int64_t end = run_end(log.size());
    if (stops_at_marks) {
      for (const int64_t mark : {request.history_tokens, request.user_tokens}) {
        if (log.size() < mark) end = std::min(end, mark);
      }
    }
    return end - log.size();
  }
  // The conversation to cache when the choice has ended. If a stop string cut the text, its tokens
  // spell more than the text.
  Conversation conversation() {
    Conversation kept{.salt = request.salt, .title = request.title, .log = std::move(log)};
    const auto& said = answer->tokens();
    const auto computed = kept.log.size() - static_cast<int64_t>(request.prompt.size());
    const bool whole = computed >= 0 && computed <= static_cast<int64_t>(said.size());
    if (failure || !whole || request.text.empty() || answer->end() == AnswerEnd::kStopString) {
      return kept;
    }
    kept.text = request.text + answer->text();
    kept.ahead.assign(said.begin() + computed, said.end());
    return kept;
  }
};

}  // namespace fasa::serve
