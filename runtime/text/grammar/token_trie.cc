#include "runtime/text/grammar/token_trie.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/utf8.h"

namespace fasa::text {
namespace {

using Tokens = std::span<const std::pair<std::string_view, int32_t>>;

constexpr size_t kMany = 8;  // tokens of a branch that is described

// Adds a token's bytes. Returns false if they are not whole characters, or too many.
bool add(std::string_view bytes, TokenTrie::Contents& contents) {
  uint32_t characters = 0;
  for (size_t at = 0; at < bytes.size(); ++characters) {
    const Utf8Sequence sequence = utf8_sequence(bytes, at);
    if (sequence.kind != SequenceKind::kWhole || characters == TokenTrie::kMaxCharacters) {
      return false;
    }
    const auto byte = static_cast<unsigned char>(bytes[at]);
    if (byte < 128) {
      contents.ascii[byte / 64] |= uint64_t{1} << (byte % 64);
    } else {
      contents.others = true;
    }
    at += sequence.bytes;
  }
  contents.characters = std::max(contents.characters, characters);
  return true;
}

std::optional<TokenTrie::Contents> contents_of(Tokens tokens, size_t depth) {
  if (tokens.size() < kMany) return std::nullopt;
  TokenTrie::Contents contents;
  for (const auto& [bytes, id] : tokens) {
    if (!add(bytes.substr(depth), contents)) return std::nullopt;
  }
  return contents;
}

size_t common_bytes(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

}  // namespace

TokenTrie::TokenTrie(Tokens tokens) {
  nodes_.clear();
  std::vector<size_t> open;  // the nodes whose branches go on
  const auto close_below = [&](size_t depth) {
    while (open.size() > depth) {
      Node& node = nodes_[open.back()];
      node.end = static_cast<uint32_t>(nodes_.size());
      const Tokens branch = tokens.subspan(node.first, ids_.size() - node.first);
      if (const auto contents = contents_of(branch, node.depth)) {
        node.contents = static_cast<int32_t>(contents_.size());
        contents_.push_back(*contents);
      }
      open.pop_back();
    }
  };
  std::string_view before;
  for (const auto& [bytes, id] : tokens) {
    close_below(common_bytes(before, bytes));
    for (size_t depth = open.size(); depth < bytes.size(); ++depth) {
      open.push_back(nodes_.size());
      nodes_.push_back({.end = 0,
                        .first = static_cast<uint32_t>(ids_.size()),
                        .depth = static_cast<uint32_t>(depth + 1),
                        .contents = -1,
                        .byte = static_cast<unsigned char>(bytes[depth])});
    }
    max_depth_ = std::max(max_depth_, static_cast<uint32_t>(bytes.size()));
    ids_.push_back(id);
    before = bytes;
  }
  close_below(0);
  nodes_.push_back({.end = static_cast<uint32_t>(nodes_.size()),
                    .first = static_cast<uint32_t>(ids_.size()),
                    .depth = 0,
                    .contents = -1,
                    .byte = 0});
}

}  // namespace fasa::text
