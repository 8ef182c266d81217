// What pinning host memory for a GPU decides without one: how large memory is cut, and what to tell
// a user whose system refuses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fasa {

// A registration's time grows faster than its size, 500 GB in one took 20 times as long as in
// pieces.
inline constexpr size_t kPinnedPieceBytes = size_t{64} << 30;

struct PinnedPiece {
  size_t offset = 0;
  size_t bytes = 0;
};
// [0, bytes) in order, each piece of at most `most` bytes.
std::vector<PinnedPiece> pinned_pieces(size_t bytes, size_t most = kPinnedPieceBytes);

// What bounds locked memory here.
struct PinningLimits {
  uint64_t locked_bytes = UINT64_MAX;  // RLIMIT_MEMLOCK; UINT64_MAX: none
  bool container = false;
  bool wsl = false;
};
PinningLimits pinning_limits();  // of this process

// "close to the limit ..., which ulimit -l raises" and the like.
std::string pinning_advice(const PinningLimits& limits, uint64_t pinned_bytes,
                           uint64_t asked_bytes);

}  // namespace fasa
