// What a session on disk is: its tokens and where their keys and values lie. A manifest names what has
// been written; rows behind that are nobody's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/serve/token_log.h"

namespace fasa::serve {

// Keys and values of tokens that follow each other, in a file of rows.
struct RowChunk {
  int64_t first = 0;  // token
  int64_t tokens = 0;
  uint64_t offset = 0;  // bytes into the file
  uint64_t checksum = 0;

  bool operator==(const RowChunk&) const = default;
};

// A conversation as far as it was served.
struct Conversation {
  std::string salt = {};  // whose it is; only requests of the same salt see it
  TokenLog log = {};      // the tokens that have keys and values
  std::string text = {};  // of the log and `ahead`, where a template rendered it; empty: not known
  std::vector<int32_t> ahead = {};  // sampled, not computed: the answer's last
};

struct SessionManifest {
  uint64_t written = 0;      // a count of commits to its folder: the last has the largest
  std::string fingerprint;   // of all that keys and values depend on beside the tokens
  uint64_t token_bytes = 0;  // of keys and values of one token, all layers
  Conversation conversation;
  std::vector<RowChunk> chunks;  // of all tokens, in order
};

std::string encode_manifest(const SessionManifest& manifest);
// Throws InputError, naming `place`, for anything but what encode_manifest() gave.
SessionManifest decode_manifest(std::string_view bytes, const std::string& place);

}  // namespace fasa::serve
