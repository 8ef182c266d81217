// Options of the engine loop.
#pragma once

#include <cstddef>
#include <optional>

#include "offload/store/retention.h"
#include "runtime/serve/session_suspension.h"

namespace fasa::serve {

struct EngineOptions {
  int max_sequences = 16;  // computed at the same time
  int max_waiting = 64;
  int threads = 0;  // that choose tokens; 0: as many as cores
  int prefill_chunk = 512;
  double max_step_seconds = 0;      // 0: see PrefillBudget
  double idle_step_seconds = 0.05;  // of a prompt while nothing decodes: new requests wait for it
  double prompt_share = 0.5;        // see PromptTurns
  // A continued conversation decodes its new turn if it has at most so many new tokens, else
  // prefills it. Results depend on this value, not on what happened to the session in between.
  int sparse_turn_tokens = 0;
  // Rollback window of cached conversations, in tokens, for models with sliding-window layers and
  // without suspended sessions (see Runtime::set_rollback_tokens; with suspended sessions
  // Runtime::create()'s default holds). A request that diverges before it is recomputed.
  int64_t rollback_tokens = kConversationRollback;
  size_t log_bytes = size_t{64} << 20;
  std::optional<SuspensionOptions> sessions =
      {};  // none: sessions that do not fit into memory are forgotten
};

}  // namespace fasa::serve
