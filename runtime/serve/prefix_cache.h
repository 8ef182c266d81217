// Cached sequences of finished requests: a request with the same prefix computes only its new
// tokens. Prefixes are compared by tokens, never by a hash alone, and never across salts.
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
#include "runtime/llm/generation/token_log.h"
#include "runtime/serve/session_manifest.h"

namespace fasa::serve {

// A prefix of a session on disk.
struct SuspendedPrefix {
  uint64_t session = 0;  // its number in the session store
  int64_t tokens = 0;
  int64_t first_page = 0;            // pages from here on have all rows
  int64_t held = 0;                  // tokens to which it can be cut beside them; 0: none
  std::vector<int64_t> states = {};  // with layers of linear attention: tokens that have one
};

// One conversation so far. Without a sequence and without a copy on disk only its log is left,
// which tells how to recompute its tokens identically.
struct CachedSession {
  uint64_t id = 0;
  Conversation conversation = {};
  std::optional<SequenceId> sequence = {};
  uint64_t device_bytes = 0, host_bytes = 0;  // of the sequence, shared memory included
  std::optional<SuspendedPrefix> suspended = {};
  uint64_t last_used = 0;  // a count of requests, not a time
  int turns = 1;           // requests that it answered, one after another
  std::chrono::steady_clock::time_point used_at{};
  bool suspend_failed = false;  // writing to disk failed
  bool evicted = false;         // its memory is freed as soon as it is on disk
  bool wanted_on_disk = false;  // it is suspended without delay
  bool unsaved = false;         // its records differ from those on disk

  const TokenLog& log() const { return conversation.log; }
  size_t bytes() const;  // in host memory, without the sequence's
};

// The result of a prompt's lookup.
struct PrefixMatch {
  // How the prompt's first tokens were computed before; recomputing them follows it.
  TokenLog known;
  // The cached sequence with the longest common prefix, and its length.
  std::optional<uint64_t> source;
  int64_t cached = 0;
  // A session on disk with a longer common prefix.
  std::optional<SuspendedPrefix> suspended;
  // The longest common prefix that memory or disk has, whether or not it can be cut there.
  int64_t held = 0;
};

// Not thread-safe. Its destructor frees the sequences; `runtime` must outlive it.
class PrefixCache {
 public:
  // `log_bytes`: limit for sessions that have only a log; the oldest are forgotten.
  PrefixCache(Runtime& runtime, size_t log_bytes);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;  // frees once
  PrefixCache& operator=(const PrefixCache&) = delete;

  // Matches at most all but the last token of `prompt`, whose logits are needed. `known`: how this
  // request's first tokens have been computed; empty: not yet.
  PrefixMatch find(const std::string& salt, std::span<const int32_t> prompt,
                   const TokenLog& known = {}) const;

  // A sequence of the first `tokens` tokens for a new request: the cached sequence itself if it has
  // no more (it leaves the cache), else a fork.
  SequenceId take(uint64_t id, int64_t tokens);
  // Inserts a sequence. A cached session whose log is a prefix of this one is removed; this one
  // takes over its copy on disk.
  uint64_t insert(Conversation conversation, SequenceId sequence);
  // Inserts a session found on disk, whole.
  void insert(Conversation conversation, SuspendedPrefix suspended);

  // The session whose memory is worth least, among those that hold some and are not being evicted;
  // null: none.
  CachedSession* cheapest();
  bool evicting() const;  // a session that is being evicted still holds memory
  // Frees the memory of its sequence; its log stays.
  void release(CachedSession& cached);
  // Removes a session and frees its memory. False: there is no such session.
  bool forget(uint64_t id);
  // Adds records to the conversation of that salt with the longest prefix of `ids`, whole or up to
  // their last token. They replace others of the same ids. Null: there is no such conversation.
  CachedSession* attach(const std::string& salt, std::span<const int32_t> ids,
                        const Records& records);
  // The conversation that has the record; null: none.
  const CachedSession* holder(const std::shared_ptr<const Record>& record) const;
  // Removes a record. Conversations that had no other are forgotten.
  void detach(const std::string& salt, const std::string& record);
  // Sessions on disk that no cached session uses any more.
  std::vector<uint64_t> take_unwanted() { return std::exchange(unwanted_, {}); }

  const std::list<CachedSession>& sessions() const { return sessions_; }
  std::list<CachedSession>& sessions() { return sessions_; }
  int64_t sequences() const;
  // Incremented with every change of the cached sessions; a caller that changes one calls
  // changed().
  uint64_t changes() const { return changes_; }
  void changed() { ++changes_; }

 private:
  CachedSession* find(uint64_t id);
  bool has_states() const { return runtime_.geometry().linear.layers > 0; }
  int64_t shared_tokens(const CachedSession& cached) const;
  double worth(const CachedSession& cached, std::chrono::steady_clock::time_point now) const;
  int64_t resume_point(const SuspendedPrefix& suspended, int64_t tokens) const;
  int64_t first_page(const SuspendedPrefix& suspended, int64_t tokens) const;
  void inherit(CachedSession& heir, CachedSession& beginning);
  void remove_record(CachedSession& cached, const std::string& id);
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
