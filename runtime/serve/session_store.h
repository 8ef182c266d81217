// Sessions in a folder. Each is a file of rows, which only grows, and a manifest that is replaced whole
// once what it names lies on disk: whoever is killed at any moment leaves sessions as they were last
// committed. One thread at a time, one process at a time.
//
//   NUMBER.rows      keys and values, chunk after chunk: [layers][k of its tokens, v of its tokens]
//   NUMBER.session   the manifest (session_manifest.h)
//   salt             drawn when the folder was made (see store_salt)
//   lock             held by the process that uses it
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/serve/session_manifest.h"

namespace fasa::serve {

struct StoreOptions {
  std::string dir;  // made where it is missing, for its owner alone
  uint64_t limit_bytes = uint64_t{64} << 30;
  std::string fingerprint;  // sessions of others are kept, and not seen
  uint64_t token_bytes = 0;
  // Called before each change on disk; for tests that end the process there.
  std::function<void()> before_change = {};
};

struct FoundSession {
  uint64_t number = 0;
  uint64_t written = 0;
  Conversation conversation;
};

class SessionStore {
 public:
  // Removes what is damaged or was never committed, with a warning. Throws UsageError: the folder
  // cannot be made or read, or another process uses it.
  explicit SessionStore(StoreOptions options);
  ~SessionStore();
  SessionStore(const SessionStore&) = delete;  // holds the lock
  SessionStore& operator=(const SessionStore&) = delete;

  // What was there at the start, least recently written first; once.
  std::vector<FoundSession> take_found() { return std::move(found_); }

  // The number of a new, empty session.
  uint64_t create();
  // The tokens behind those written so far. Throws UsageError where the disk does not take them;
  // nothing has changed then.
  void write(uint64_t session, int64_t tokens, std::span<const std::byte> rows);
  // All that was written is the session from now on: the rows of `conversation.log`. As above.
  void commit(uint64_t session, const Conversation& conversation);
  int64_t written(uint64_t session) const;    // tokens, with those not committed
  int64_t committed(uint64_t session) const;  // tokens; 0: there is no such session
  // The chunk that holds a written token, and its rows. Throws InputError where they are not what
  // was written, or the session is not there any more.
  RowChunk chunk_at(uint64_t session, int64_t token) const;
  void read(uint64_t session, const RowChunk& chunk, std::vector<std::byte>* rows) const;
  // Frees its bytes on disk.
  void remove(uint64_t session) noexcept;

  // Whether `bytes` more fit, once sessions of other fingerprints gave way, the oldest first.
  bool make_room(uint64_t bytes);
  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t limit_bytes() const { return options_.limit_bytes; }
  uint64_t token_bytes() const { return options_.token_bytes; }

 private:
  struct Stored {
    std::vector<RowChunk> chunks;  // written
    int64_t written = 0, committed = 0;
    uint64_t manifest_bytes = 0;
    bool foreign = false;
    uint64_t foreign_bytes = 0;
  };
  std::string path(uint64_t session, const char* suffix) const;
  void lock_folder();
  void scan();
  void load(uint64_t session);
  uint64_t bytes_of(const Stored& stored) const;
  void changing() const;

  const StoreOptions options_;
  int lock_ = -1;
  std::map<uint64_t, Stored> stored_;  // by number: older ones first
  std::vector<FoundSession> found_;
  uint64_t used_bytes_ = 0;
  uint64_t next_ = 1;     // number
  uint64_t commits_ = 0;  // so far, in the folder
};

// A salt for hashes of secrets that go into the folder, the same each time. Makes the folder. Throws
// UsageError.
std::string store_salt(const std::string& dir);

}  // namespace fasa::serve
