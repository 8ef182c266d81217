// How requests are served.
#pragma once

#include <cstddef>
#include <optional>

#include "runtime/serve/session_suspension.h"
#include "scheduler/cache/rollback_window.h"

namespace fasa::serve {

struct EngineOptions {
  int max_sequences = 16;  // that are computed at once
  int max_waiting = 64;
  int prefill_chunk = 512;
  double max_step_seconds = 0;  // 0: see PrefillBudget
  // A turn of a conversation that goes on is decoded where it has at most so many new tokens. Bits
  // depend on it, and on nothing that happened to the conversation meanwhile.
  int sparse_turn_tokens = 0;
  // Tokens from its end within which a conversation goes on elsewhere from its cache, where layers see
  // a window only and no sessions are suspended (with those, what Runtime::create() says): see
  // Runtime::set_rollback_tokens. Behind that all is computed anew.
  int64_t rollback_tokens = kConversationRollback;
  size_t log_bytes = size_t{64} << 20;
  std::optional<SuspensionOptions> sessions =
      {};  // none: what does not fit into memory is forgotten
};

}  // namespace fasa::serve
