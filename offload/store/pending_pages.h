// Contents of a sequence's first pages that are not in memory yet. Their blocks are; rows are
// loaded into them when a step needs them. Kernels and sets do not depend on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fasa {

// A part of a row block.
struct RowBytes {
  int64_t page = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
};

// Used by one thread at a time. Serves a sequence and its forks, which share the pages. `blocks`:
// the sequence's row blocks by page, in host-writable memory.
class PendingPages {
 public:
  virtual ~PendingPages() = default;

  // Loads all of `wanted` that is not in the blocks yet. Throws InputError if that fails; rows
  // loaded before stay valid.
  virtual void load(std::span<const RowBytes> wanted, std::span<std::byte* const> blocks) = 0;
  // Loads about `max_bytes` of the rows that are missing in the first `pages` pages. Returns true
  // if none is missing any more. Throws as load() does.
  virtual bool load_more(int64_t pages, size_t max_bytes, std::span<std::byte* const> blocks) = 0;
  // True after a failed load: the missing rows are lost.
  virtual bool lost() const = 0;
};

// A sequence's rows as the host moves them in a step. Valid until the sequence changes.
struct RowView {
  std::span<std::byte* const> blocks = {};  // by page, in the store's memory
  std::span<std::byte* const> copies = {};  // on the device, null: none; may be shorter
  PendingPages* pending = nullptr;  // contents of the first `pending_pages` pages may be missing
  int64_t pending_pages = 0;

  bool has_copy(int64_t page) const {
    const auto at = static_cast<size_t>(page);
    return at < copies.size() && copies[at] != nullptr;
  }
};

}  // namespace fasa
