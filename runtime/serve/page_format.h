// The layout of a cache page in a session's file:
//
//   header: slices, and a checksum of every piece of the rows
//   rows: as in memory. A piece is the unit of reading: a few rows of one layer and KV head
//
// Both begin at multiples of a piece. A partial page has no slices: zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/api/sequences/runtime.h"

namespace fasa::serve {

struct PageFormat {
  static constexpr size_t kPiece = 4096;

  PageBytes bytes;

  size_t pieces() const { return up(bytes.rows) / kPiece; }
  size_t header_bytes() const { return bytes.slices + pieces() * sizeof(uint64_t); }
  size_t rows_begin() const { return up(header_bytes()); }
  size_t page_bytes() const { return rows_begin() + up(bytes.rows); }
  size_t piece_bytes(size_t piece) const {
    return piece + 1 < pieces() ? kPiece : bytes.rows - piece * kPiece;
  }

  static constexpr size_t up(size_t bytes) { return (bytes + kPiece - 1) / kPiece * kPiece; }
};

}  // namespace fasa::serve
