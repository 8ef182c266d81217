// The pages and a state of a session on disk. Pages are read whole, or slices first and rows when a
// step selects them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "offload/store/pending_pages.h"
#include "runtime/base/error.h"
#include "runtime/serve/page_format.h"
#include "runtime/serve/read_pool.h"
#include "runtime/serve/session_manifest.h"

namespace fasa::serve {

// A session's pages on disk are damaged or gone: its tokens must be recomputed.
class LostSession : public InputError {
 public:
  LostSession(uint64_t session, const std::string& message)
      : InputError(message), session_(session) {}
  uint64_t session() const { return session_; }

 private:
  uint64_t session_;
};

// An open file of pages. It stays readable if the session is removed.
class PageFile {
 public:
  PageFile(std::string path, int flags);  // open() tells whether that succeeded
  ~PageFile();
  PageFile(const PageFile&) = delete;  // closes once
  PageFile& operator=(const PageFile&) = delete;

  bool open() const { return file_ >= 0; }
  int get() const { return file_; }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  int file_ = -1;
};

class SuspendedPages final : public PendingPages {
 public:
  struct Content {
    std::vector<StoredPage> pages;
    StoredState state = {};  // one of the session's; no pieces: none
  };
  // `pool` must outlive it.
  SuspendedPages(ReadPool& pool, uint64_t session, std::unique_ptr<PageFile> file,
                 const PageFormat& format, Content content);

  int64_t pages() const { return static_cast<int64_t>(pages_.size()); }
  const PageFormat& format() const { return format_; }
  // Reads the headers of pages first, first + 1, ...; their rows can be read from then on. This and
  // the others throw LostSession.
  void read_page_headers(int64_t first, std::span<std::byte> page_headers);
  // Their rows.
  void read_rows(int64_t first, std::span<std::byte> rows);
  const StatePoint& state() const { return state_.point; }
  // Its next pieces.
  void read_state(size_t first, std::span<std::byte> bytes);
  // Marks the rows of pages before `page` as in memory.
  void has_until(int64_t page);

  void load(std::span<const RowBytes> wanted, std::span<std::byte* const> blocks) override;
  bool load_more(int64_t pages, size_t max_bytes, std::span<std::byte* const> blocks) override;
  bool lost() const override { return lost_; }

 private:
  uint64_t offset_of(int64_t page) const {
    return pages_[static_cast<size_t>(page)].place * format_.page_bytes();
  }
  void add(int64_t page, size_t piece, std::byte* block);
  void read_added();

  ReadPool& pool_;
  const uint64_t session_;
  const std::unique_ptr<PageFile> file_;
  const PageFormat format_;
  const std::vector<StoredPage> pages_;
  const StoredState state_;
  std::vector<uint64_t> checksums_;  // [pages][pieces] of pages whose headers were read
  std::vector<bool> present_;        // [pages][pieces] whose rows are in memory
  int64_t complete_ = 0;             // number of leading pages that are complete
  std::vector<CheckedRead> reads_;
  bool lost_ = false;
};

}  // namespace fasa::serve
