// Byte-pair encoding: a word's characters, merged pair by pair in the order of the merges' ranks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/text/merge_table.h"
#include "runtime/text/vocabulary.h"

namespace fasa::text {

struct BpeOptions {
  std::string unk_token;       // "" for none: unknown characters vanish then
  bool fuse_unk = false;       // neighbouring unknown characters become one
  bool byte_fallback = false;  // unknown characters become the pieces <0x00> to <0xFF>
  bool ignore_merges = false;  // a word that is a piece is that piece
};

// Merges as the file gives them, before all pieces are known.
class MergeList {
 public:
  // Throws InputError beyond the limits.
  void add(std::string_view left, std::string_view right, const std::string& place);
  // `pair`: "left right".
  void add(std::string_view pair, const std::string& place);
  size_t size() const { return lengths_.size(); }
  // Throws InputError, naming the merge, where a part or the whole is no piece.
  MergeTable table(const Vocabulary& vocabulary, const std::string& place) const;

 private:
  struct Lengths {
    uint32_t left, right;
  };
  std::vector<char> bytes_;
  std::vector<Lengths> lengths_;
};

// Read by any number of threads.
class Bpe {
 public:
  // Throws InputError where `unk_token` is no piece.
  Bpe(Vocabulary vocabulary, MergeTable merges, BpeOptions options, const std::string& place);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  std::optional<int32_t> unk_id() const { return unk_id_; }

 private:
  friend class WordEncoder;
  int32_t id_of_character(std::string_view character) const;  // -1: none

  static constexpr size_t kLowCharacters = 0x3000;
  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  std::optional<int32_t> unk_id_;
  std::array<int32_t, 256> byte_ids_;  // of <0x00> to <0xFF>; -1: none
  std::vector<int32_t> low_ids_;       // of the characters below kLowCharacters; -1: none
};

// Encodes the words of one prompt and remembers them. Of one thread.
class WordEncoder {
 public:
  explicit WordEncoder(const Bpe& bpe) : bpe_(bpe) {}  // outlives it
  void append(std::string_view word, std::vector<int32_t>& ids);

 private:
  static constexpr uint32_t kNoMerge = UINT32_MAX;
  struct Symbol {
    int32_t id;                      // -1: merged into the one before
    int32_t previous, next;          // places in symbols_; -1: none
    uint32_t merge_rank = kNoMerge;  // with the next one
    int32_t merge_id = -1;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  void split(std::string_view word);
  void add_symbol(int32_t id);
  bool add_bytes(std::string_view character);
  void add_unknown();
  void merge();
  // Finds how a symbol merges with the next one now; a candidate, kNoCandidate where it does not.
  uint64_t candidate_at(int32_t at);
  void merge_at(int32_t at);
  void offer(int32_t at);

  const Bpe& bpe_;
  std::vector<Symbol> symbols_;
  // Candidates are ranks above places, in 64 bits, so that the least goes first: those of the word
  // as it was split, sorted, and a heap of those that merges made.
  static constexpr uint64_t kNoCandidate = UINT64_MAX;
  std::vector<uint64_t> first_, heap_;
  bool unknown_pending_ = false;
  // Ids of words that came before: [begin, end) of remembered_.
  std::unordered_map<std::string, std::pair<uint32_t, uint32_t>, Hash, std::equal_to<>> words_;
  std::vector<int32_t> remembered_;
};

}  // namespace fasa::text
