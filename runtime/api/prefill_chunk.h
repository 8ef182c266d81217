// The tokens of a prompt that a step takes, where that is automatic.
//
// A longer chunk reads the rows of earlier tokens back over the link less often, and weights too:
// rows on the host cross it (chunks - 1) / 2 times. It needs more memory for activations.
#pragma once

#include <cstdint>

namespace fasa {

inline constexpr int kAutomaticChunk = -1;  // in options: chosen by memory
inline constexpr int kMinPrefillChunk = 512;
inline constexpr int kMaxPrefillChunk = 4096;
// Tokens of a layer worked on at a time, where a prompt is read layer by layer.
inline constexpr int kPieceTokens = 1024;
// A chunk that goes layer by layer has no more: a cancelled prompt loses at most so many. Rows on
// the host cross the link once and (chunks - 1) / 2 times.
inline constexpr int kMaxChunkTokens = 32768;
// Where rows are read in place a longer chunk saves nothing, and takes more rows of layers with a
// window, which stay until it has gone through all layers.
constexpr int longest_chunk(bool in_place, uint64_t window_rows) {
  return in_place && window_rows > 0 ? kMaxPrefillChunk : kMaxChunkTokens;
}
// In a server, where a new request waits for the chunk of another.
inline constexpr int kMaxServedChunk = 2048;

// The largest chunk of up to `most` tokens that fits, no longer than needed for `tokens`; the least
// if none does. Multiples of a page.
template <typename Fits>
int largest_prefill_chunk(int64_t tokens, const Fits& fits, int most = kMaxPrefillChunk) {
  for (int chunk = most; chunk > kMinPrefillChunk; chunk /= 2) {
    if (chunk / 2 < tokens && fits(chunk)) return chunk;
  }
  return kMinPrefillChunk;
}

}  // namespace fasa
