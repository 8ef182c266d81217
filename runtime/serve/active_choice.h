// One choice of a request: active, or waiting.
#pragma once

#include <chrono>
#include <cstdint>
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
#include "runtime/serve/wanted_tokens.h"

namespace fasa::serve {

// Used by the loop's thread only.
struct ActiveChoice {
  struct Failure {
    ErrorKind kind;
    std::string message;
  };

  // What its next step waits for.
  struct Waits {
    std::optional<Resuming> resuming;  // set while tokens are read from disk
    bool rows = false;                 // it prefills, and some rows are on disk only
    bool memory = false;               // until a session is evicted

    bool for_disk() const { return resuming || rows; }
  };

  uint64_t id = 0;
  int choice = 0;
  GenerationRequest request;
  std::unique_ptr<Answer> answer;
  WantedTokens wanted;                  // in the cache before `next`
  std::optional<int32_t> next;          // sampled, not yet in the cache
  std::unique_ptr<DraftSource> drafts;  // of its text so far; null: none yet
  std::optional<Audit> audit;
  std::optional<SequenceId> sequence;
  TokenLog log;  // the tokens that the sequence holds
  Waits waits;
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
  bool runs() const { return placed() && !finished && !waits.memory; }
  bool reads() const { return runs() && waits.for_disk(); }  // from disk
  bool computes() const { return runs() && !waits.for_disk(); }
  bool at_prompt() const { return log.size() < wanted.size(); }
  StepMode mode() const { return wanted.mode(log.size()); }
  int32_t token(int64_t position) const {
    return position < wanted.size() ? wanted.ids()[static_cast<size_t>(position)] : *next;
  }
  int64_t prompt_left() const { return wanted.size() - log.size(); }
  // Tokens of `wanted` that the next step may take by prefill, and by decoding.
  int64_t prefill_left() const { return wanted.left(log.size(), StepMode::kPrefill); }
  int64_t decode_left() const { return wanted.left(log.size(), StepMode::kDecode); }
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
