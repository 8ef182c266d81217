// What a session on disk is: its tokens and where their pages lie. A manifest names what has been
// written; pages that none names are nobody's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/serve/token_log.h"

namespace fasa::serve {

// A page of the cache in a file of pages.
struct StoredPage {
  uint64_t place = 0;     // in pages, from the file's beginning
  uint64_t checksum = 0;  // of its head: slices, and the checksums of its rows

  bool operator==(const StoredPage&) const = default;
};

// A conversation as far as it was served.
struct Conversation {
  std::string salt = {};  // whose it is; only requests of the same salt see it
  TokenLog log = {};      // the tokens that have keys and values
  std::string text = {};  // of the log and `ahead`, where a template rendered it; empty: not known
  std::vector<int32_t> ahead = {};  // sampled, not computed: the answer's last
};

struct SessionManifest {
  uint64_t written = 0;     // a count of commits to its folder: the last has the largest
  std::string fingerprint;  // of all that keys and values depend on beside the tokens
  uint64_t page_bytes = 0;  // in the file
  Conversation conversation;
  uint64_t first_page = 0;        // from which on all rows are there
  std::vector<StoredPage> pages;  // of all tokens, in order
};

std::string encode_manifest(const SessionManifest& manifest);
// Throws InputError, naming `place`, for anything but what encode_manifest() gave.
SessionManifest decode_manifest(std::string_view bytes, const std::string& place);

}  // namespace fasa::serve
