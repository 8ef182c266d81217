// Sequences that were served and are kept, so that the next request that begins alike computes only
// what is new. Compared by tokens, never by a hash alone; never across salts.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>

#include "runtime/base/ids.h"
#include "runtime/doors/runtime.h"
#include "runtime/serve/token_log.h"

namespace fasa::serve {

// One conversation as far as it was served. Without a sequence it is only remembered: how its
// tokens were computed, so that they can be computed alike again.
struct Kept {
  uint64_t id = 0;
  std::string salt;  // whose it is; only requests of the same salt see it
  TokenLog log;
  std::optional<SequenceId> sequence;
  uint64_t last_used = 0;  // a count of requests, not a time
};

// What a prompt finds.
struct PrefixMatch {
  // How the prompt's first tokens were computed before: computing them again does the same.
  TokenLog known;
  // The kept sequence that holds most of them, and how many.
  std::optional<uint64_t> source;
  int64_t cached = 0;
};

// One thread at a time. Frees its sequences when it is destroyed; `runtime` outlives it.
class PrefixCache {
 public:
  // `log_bytes`: of conversations that are only remembered, at most; the oldest are forgotten.
  PrefixCache(Runtime& runtime, size_t log_bytes);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;  // frees once
  PrefixCache& operator=(const PrefixCache&) = delete;

  // At most `prompt` less its last token, whose logits are wanted.
  PrefixMatch find(const std::string& salt, std::span<const int32_t> prompt) const;

  // A sequence of its first `tokens` tokens for a new request: the kept one itself where nothing
  // lies behind them (it is no longer kept then), else a fork.
  SequenceId take(uint64_t id, int64_t tokens);
  // Keeps a sequence; a kept log that is the beginning of this one is forgotten with its memory.
  uint64_t keep(std::string salt, TokenLog log, SequenceId sequence);

  // Gives up the memory of the sequence that was used longest ago; its log stays. False: there is
  // none.
  bool evict_one();
  // Frees and forgets. False: there is no such one.
  bool forget(uint64_t id);

  const std::list<Kept>& kept() const { return kept_; }
  int64_t sequences() const;

 private:
  Kept* find(uint64_t id);
  void free(Kept& kept);
  void forget_oldest_logs();

  Runtime& runtime_;
  const size_t log_bytes_;
  std::list<Kept> kept_;
  uint64_t next_id_ = 1;
  uint64_t uses_ = 0;
};

}  // namespace fasa::serve
