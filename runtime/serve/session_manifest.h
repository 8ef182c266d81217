// The manifest of a session on disk: its tokens, and the locations of its pages and states. Those
// that no manifest names are free.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/linear_shape.h"
#include "runtime/llm/generation/token_log.h"

namespace fasa::serve {

inline constexpr std::string_view kManifestVersion = "fasa session 6\n";  // its first line

// A page of the cache in a file of pages.
struct StoredPage {
  uint64_t place = 0;     // page index in the file
  uint64_t checksum = 0;  // of its header: slices, and the checksums of its rows

  bool operator==(const StoredPage&) const = default;
};

// A state of layers with linear attention in a file of pages: pieces, each as large as a page but
// the last, in the locations of pages.
struct StoredState {
  StatePoint point;
  std::vector<StoredPage> pieces;  // a checksum is the piece's

  bool operator==(const StoredState&) const = default;
};

// Data of an API that conversations carry; the engine does not read it.
struct Record {
  Record(std::string name, std::string content) : id(std::move(name)), data(std::move(content)) {}

  std::string id;
  std::string data;
};
using Records = std::vector<std::shared_ptr<const Record>>;

// A conversation so far.
struct Conversation {
  std::string salt = {};   // visible only to requests of the same salt
  std::string title = {};  // for its users; may be empty
  TokenLog log = {};       // the tokens that have keys and values
  std::string text = {};   // text of the log and `ahead`, if a template rendered it; else empty
  std::vector<int32_t> ahead = {};  // sampled but not computed: the answer's last tokens
  Records records = {};             // kept as long as a conversation that has them
  int64_t held = 0;                 // the length that it can be cut to (hold_resume_point); 0: none
};

struct SessionManifest {
  uint64_t written = 0;     // commit number in its folder: the latest has the largest
  std::string fingerprint;  // see session_fingerprint.h
  uint64_t page_bytes = 0;  // in the file
  Conversation conversation;
  uint64_t first_page = 0;          // pages from here on have all rows
  std::vector<StoredPage> pages;    // of all tokens, in order
  std::vector<StoredState> states;  // by tokens
};

std::string encode_manifest(const SessionManifest& manifest);
// Throws InputError, naming `place`, if the bytes are not from encode_manifest().
SessionManifest decode_manifest(std::string_view bytes, const std::string& place);

}  // namespace fasa::serve
