// Loads rows of a sequence that are still on disk when a step needs them. The sequence already has
// its pages; the source writes into them. Kernels and sets do not depend on it.
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

// Used by one thread at a time. Serves the first pages of a sequence and of its forks, which share
// them. `blocks`: the sequence's row blocks by page, in host-writable memory.
class RowSource {
 public:
  virtual ~RowSource() = default;

  // Loads all of `wanted` that is not in the blocks yet. Throws InputError if that fails; rows
  // loaded before stay valid.
  virtual void fetch(std::span<const RowBytes> wanted, std::span<std::byte* const> blocks) = 0;
  // Loads about `max_bytes` of the rows that are missing in the first `pages` pages. Returns true
  // if none is missing any more. Throws as fetch() does.
  virtual bool fetch_next(int64_t pages, size_t max_bytes, std::span<std::byte* const> blocks) = 0;
  // True after a failed fetch: the missing rows are lost.
  virtual bool lost() const = 0;
};

}  // namespace fasa
