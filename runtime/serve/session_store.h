// Sessions in a folder. Each is a file of pages and a manifest. Committed pages are never
// overwritten; a new manifest atomically replaces the old one once its pages are on disk. If the
// process is killed at any moment, sessions remain as last committed. One thread at a time, one
// process at a time.
//
//   NUMBER.rows      pages of the cache (page_format.h), and states of layers with linear attention
//                    in pieces of a page's size
//   NUMBER.session   the manifest (session_manifest.h)
//   salt             drawn when the folder was made (see store_salt)
//   lock             held by the process that uses it
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/params.h"
#include "runtime/serve/page_format.h"
#include "runtime/serve/session_manifest.h"
#include "runtime/serve/suspended_pages.h"

namespace fasa::serve {

struct StoreOptions {
  std::string dir;  // made where it is missing, for its owner alone
  uint64_t limit_bytes = uint64_t{64} << 30;
  std::string fingerprint;  // sessions of other fingerprints stay on disk and are not listed
  PageBytes page = {};
  // Called before each change on disk; tests end the process there.
  std::function<void()> before_change = {};
};

struct FoundSession {
  uint64_t number = 0;
  uint64_t written = 0;
  Conversation conversation;
  int64_t first_page = 0;
  std::vector<int64_t> states = {};  // tokens of each
};

class SessionStore {
 public:
  // Removes damaged and uncommitted files, with a warning. Throws UsageError if the folder cannot
  // be made or read, or if another process uses it.
  explicit SessionStore(StoreOptions options);
  ~SessionStore();
  SessionStore(const SessionStore&) = delete;  // holds the lock
  SessionStore& operator=(const SessionStore&) = delete;

  // The sessions found at the start, least recently written first. Call once.
  std::vector<FoundSession> take_found() { return std::move(found_); }

  // The number of a new, empty session.
  uint64_t create();
  // Writes a page of `tokens` tokens: its rows, and its slices if it is full. It follows the full
  // pages written so far and replaces a partial one. Throws UsageError if the disk refuses it;
  // nothing has changed then.
  void write(uint64_t session, int tokens, std::span<const std::byte> rows,
             std::span<const std::byte> slices);
  // Names the states that the session has from the next commit() on; others are dropped. Returns
  // the first of them that is not whole, with its pieces so far; null: all are.
  const StoredState* want_states(uint64_t session, const std::vector<StatePoint>& points);
  // Writes the next piece of a state that want_states() returned: as many bytes as a page of the
  // file has, or what is left. Throws like write().
  void write_state(uint64_t session, int64_t tokens, std::span<const std::byte> piece);
  // Starts to bring what was written to the disk, on a thread of its own, so that commit() need not
  // wait for it. True: it is there, after `seconds` at most. Throws like write().
  bool flush(uint64_t session, double seconds);
  // Makes the written pages the session: the rows of `conversation.log`, complete from page
  // `first_page` on. Throws like write().
  void commit(uint64_t session, const Conversation& conversation, int64_t first_page);
  int64_t written(uint64_t session) const;    // tokens, uncommitted ones included
  int64_t committed(uint64_t session) const;  // tokens; 0: there is no such session
  // The states of a session that are whole.
  std::vector<StatePoint> states(uint64_t session) const;
  // The first pages of a session, as committed, and its state at `state` tokens (0: none). Throws
  // LostSession if it no longer has them. `pool` must outlive the result.
  std::shared_ptr<SuspendedPages> open(uint64_t session, int64_t pages, int64_t state,
                                       ReadPool& pool) const;
  // Frees its space on disk.
  void remove(uint64_t session) noexcept;

  // True if `bytes` more fit. Removes sessions of other fingerprints for that, the oldest first.
  bool make_room(uint64_t bytes);
  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t limit_bytes() const { return options_.limit_bytes; }
  size_t piece_bytes() const { return format_.page_bytes(); }  // of a state
  // Bytes of `tokens` tokens in a file, without states.
  uint64_t bytes_of(int64_t tokens) const {
    return static_cast<uint64_t>(pages_of(tokens)) * format_.page_bytes();
  }

 private:
  struct Stored {
    std::vector<StoredPage> pages;    // written
    std::vector<StoredState> states;  // by tokens; the last ones may lack pieces
    int64_t written = 0, committed = 0;
    uint64_t places = 0;             // slots in the file, used or free
    std::vector<uint64_t> free;      // unused slots
    std::vector<uint64_t> replaced;  // slots that become free with the next commit
    uint64_t manifest_bytes = 0;
    std::future<void> flush;  // valid while it is under way
    bool foreign = false;
    uint64_t foreign_bytes = 0;
  };
  std::string path(uint64_t session, const char* suffix) const;
  void lock_folder();
  void scan();
  void load(uint64_t session);
  static void take_places(Stored& stored, SessionManifest& manifest, uint64_t places);
  StoredPage put(uint64_t session, Stored& stored, std::span<const std::byte> bytes,
                 size_t checked);
  uint64_t taken_by(const Stored& stored) const;
  bool is_whole(const StoredState& state) const;
  std::vector<StoredState> whole_states(const Stored& stored) const;
  void write_at(const std::string& name, std::span<const std::byte> bytes, uint64_t offset) const;
  void changing() const;

  const StoreOptions options_;
  const PageFormat format_;
  int lock_ = -1;
  std::map<uint64_t, Stored> stored_;  // by number: older ones first
  std::vector<FoundSession> found_;
  uint64_t used_bytes_ = 0;
  uint64_t next_ = 1;     // number
  uint64_t commits_ = 0;  // in this folder so far
};

// The folder's salt for hashes of secrets, always the same. Makes the folder. Throws UsageError.
std::string store_salt(const std::string& dir);

}  // namespace fasa::serve
