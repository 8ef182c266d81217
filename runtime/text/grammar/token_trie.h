// The bytes of a vocabulary's tokens as a tree, with what whole branches contain: a grammar that
// takes all of a branch need not look at its tokens one by one.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace fasa::text {

// Immutable.
class TokenTrie {
 public:
  // Branches with a longer token are not described.
  static constexpr uint32_t kMaxCharacters = 32;

  // What the tokens of a branch have behind the branch's own bytes. A character is a byte below
  // 128 or a well-formed UTF-8 sequence.
  struct Contents {
    std::array<uint64_t, 2> ascii{};  // one bit per byte below 128 that occurs
    bool others = false;              // whether other characters occur
    uint32_t characters = 0;          // of the longest token
  };
  // In order of their bytes: the branch of a node is the nodes from it up to `end`.
  struct Node {
    uint32_t end;
    uint32_t first;      // index in ids() of its first token
    uint32_t depth;      // number of bytes, at least 1
    int32_t contents;    // of its branch; -1: few tokens, long ones, or parts of characters
    unsigned char byte;  // the last one
  };

  TokenTrie() = default;
  // `tokens`: bytes and id, in order of bytes; none empty.
  explicit TokenTrie(std::span<const std::pair<std::string_view, int32_t>> tokens);

  // Closed by one more node, which has no tokens.
  std::span<const Node> nodes() const { return nodes_; }
  const Contents& contents(const Node& node) const {
    return contents_[static_cast<size_t>(node.contents)];
  }
  // Tokens in order of their bytes. Those of a node's branch are ids [node.first, first of the node
  // at node.end); the node's own end where the next node's begin.
  std::span<const int32_t> ids() const { return ids_; }
  uint32_t max_depth() const { return max_depth_; }

 private:
  std::vector<Node> nodes_ = {{}};
  std::vector<Contents> contents_;
  std::vector<int32_t> ids_;
  uint32_t max_depth_ = 0;
};

}  // namespace fasa::text
