// Sequences that were served and are cached, so that the next request that begins alike computes only
// what is new. Compared by tokens, never by a hash alone; never across salts.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/api/sequences/runtime.h"
#include "runtime/base/ids.h"
#include "runtime/serve/session_manifest.h"
#include "runtime/serve/token_log.h"

namespace fasa::serve {

// The first tokens of a session on disk.
struct SuspendedPrefix {
  uint64_t session = 0;  // of the session store
  int64_t tokens = 0;
  int64_t first_page = 0;  // from which on it has all rows
};

// One conversation as far as it was served. Without a sequence and a place on disk it is only
// remembered: how its tokens were computed, so that they can be computed alike again.
struct CachedSession {
  uint64_t id = 0;
  Conversation conversation = {};
  std::optional<SequenceId> sequence = {};
  uint64_t device_bytes = 0, host_bytes = 0;  // of the sequence, what it shares included
  std::optional<SuspendedPrefix> suspended = {};
  uint64_t last_used = 0;  // a count of requests, not a time
  std::chrono::steady_clock::time_point used_at{};
  bool suspend_failed = false;  // the disk did not take it

  const TokenLog& log() const { return conversation.log; }
  size_t bytes() const;  // in host memory, beside the sequence's
};

// What a prompt finds.
struct PrefixMatch {
  // How the prompt's first tokens were computed before: computing them again does the same.
  TokenLog known;
  // The cached sequence that holds most of them, and how many.
  std::optional<uint64_t> source;
  int64_t cached = 0;
  // A session on disk that holds more of them.
  std::optional<SuspendedPrefix> suspended;
};

// One thread at a time. Frees its sequences when it is destroyed; `runtime` outlives it.
class PrefixCache {
 public:
  // `log_bytes`: of conversations that are only remembered, at most; the oldest are forgotten.
  PrefixCache(Runtime& runtime, size_t log_bytes);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;  // frees once
  PrefixCache& operator=(const PrefixCache&) = delete;

  // At most `prompt` less its last token, whose logits are wanted. `known`: how its first tokens
  // have been computed for this very request; empty: not yet.
  PrefixMatch find(const std::string& salt, std::span<const int32_t> prompt,
                   const TokenLog& known = {}) const;

  // A sequence of its first `tokens` tokens for a new request: the cached one itself where nothing
  // lies behind them (it is no longer cached then), else a fork.
  SequenceId take(uint64_t id, int64_t tokens);
  // Inserts a sequence; a cached log that is the beginning of this one is forgotten with its memory, and
  // its place on disk is this one's.
  uint64_t insert(Conversation conversation, SequenceId sequence);
  // A session that was found on disk.
  void insert(Conversation conversation, uint64_t session, int64_t first_page = 0);

  // The one that holds memory and was used longest ago; null: there is none.
  CachedSession* oldest_in_memory();
  // Gives up the memory of its sequence; its log stays.
  void release(CachedSession& cached);
  // Frees and forgets. False: there is no such one.
  bool forget(uint64_t id);
  // Sessions on disk that no cached session names any more.
  std::vector<uint64_t> take_unwanted() { return std::exchange(unwanted_, {}); }

  const std::list<CachedSession>& sessions() const { return sessions_; }
  std::list<CachedSession>& sessions() { return sessions_; }
  int64_t sequences() const;
  // Grows with every change of the cached sessions; a caller that changes one calls changed().
  uint64_t changes() const { return changes_; }
  void changed() { ++changes_; }

 private:
  CachedSession* find(uint64_t id);
  void inherit(CachedSession& heir, CachedSession& beginning);
  void free(CachedSession& cached);
  void forget_oldest_logs();

  Runtime& runtime_;
  const size_t log_bytes_;
  std::list<CachedSession> sessions_;
  std::vector<uint64_t> unwanted_;
  uint64_t next_id_ = 1;
  uint64_t uses_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace fasa::serve
