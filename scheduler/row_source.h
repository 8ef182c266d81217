// Rows of a sequence that lie elsewhere, on a disk, until a step reads them. The sequence has its pages
// already; the source writes into them. Kernels and sets know nothing of it.
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

// One thread at a time. Its pages are a sequence's first ones, and those of its forks, which share them.
// `blocks` are that sequence's row blocks by page, in memory that the host writes.
class RowSource {
 public:
  virtual ~RowSource() = default;

  // All of `wanted` is in the blocks when it returns, in pages that it knows; what has been there stays.
  // Throws InputError where it can't be had; what had been there is.
  virtual void fetch(std::span<const RowBytes> wanted, std::span<std::byte* const> blocks) = 0;
  // The next of what is missing in the first `pages` pages, about `max_bytes` of it. True: nothing is
  // missing there now. Throws as fetch() does.
  virtual bool fetch_next(int64_t pages, size_t max_bytes, std::span<std::byte* const> blocks) = 0;
  // A fetch has failed: what is missing can never be had.
  virtual bool lost() const = 0;
};

}  // namespace fasa
