// Decisions for pinning host memory that need no GPU: how large memory is split, and the advice to
// a user whose system refuses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fasa {

// Registration time grows faster than size: 500 GB in one piece took 20 times as long as in pieces.
inline constexpr size_t kPinnedPieceBytes = size_t{64} << 30;

struct PinnedPiece {
  size_t offset = 0;
  size_t bytes = 0;
};
// Splits [0, bytes) in order into pieces of at most `most` bytes.
std::vector<PinnedPiece> pinned_pieces(size_t bytes, size_t most = kPinnedPieceBytes);

// The limits of locked memory on this system.
struct PinningLimits {
  uint64_t locked_bytes = UINT64_MAX;  // RLIMIT_MEMLOCK; UINT64_MAX: none
  bool container = false;
  bool wsl = false;
};
PinningLimits pinning_limits();  // of this process

// Advice such as "close to the limit ..., which ulimit -l raises".
std::string pinning_advice(const PinningLimits& limits, uint64_t pinned_bytes,
                           uint64_t asked_bytes);

}  // namespace fasa
