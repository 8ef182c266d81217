// Byte-pair encoding: a word's characters are merged pair by pair in order of rank.
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
  std::string unk_token;       // "": unknown characters are dropped
  bool fuse_unk = false;       // adjacent unknown characters become one token
  bool byte_fallback = false;  // unknown characters become the pieces <0x00> to <0xFF>
  bool ignore_merges = false;  // a word that is a piece is not split
};

// Merges from the file, collected before all pieces are known.
class MergeList {
 public:
  // Throws InputError beyond the limits.
  void add(std::string_view left, std::string_view right, const std::string& place);
  // `pair`: "left right".
  void add(std::string_view pair, const std::string& place);
  size_t size() const { return lengths_.size(); }
  // Throws InputError, naming the merge, if a part or its result is not a piece.
  MergeTable table(const Vocabulary& vocabulary, const std::string& place) const;

 private:
  struct Lengths {
    uint32_t left, right;
  };
  std::vector<char> bytes_;
  std::vector<Lengths> lengths_;
};

// Thread-safe.
class Bpe {
 public:
  // Throws InputError if `unk_token` is not a piece.
  Bpe(Vocabulary vocabulary, MergeTable merges, BpeOptions options, const std::string& place);

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  friend class WordEncoder;
  int32_t id_of_character(std::string_view character) const;  // -1: none

  static constexpr size_t kLowCharacters = 0x3000;
  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  std::optional<int32_t> unk_id_;
  std::array<int32_t, 256> byte_ids_;  // <0x00> to <0xFF>; -1: none
  std::vector<int32_t> low_ids_;       // characters below kLowCharacters; -1: none
};

// Encodes the words of one prompt, with a cache of words. Not thread-safe.
class WordEncoder {
 public:
  explicit WordEncoder(const Bpe& bpe) : bpe_(bpe) {}  // `bpe` must outlive it
  void append(std::string_view word, std::vector<int32_t>& ids);

 private:
  static constexpr uint32_t kNoMerge = UINT32_MAX;
  struct Symbol {
    int32_t id;                      // -1: merged into the one before
    int32_t previous, next;          // indexes in symbols_; -1: none
    uint32_t merge_rank = kNoMerge;  // of the merge with the next symbol
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
  // The candidate for merging a symbol with its next one, kNoCandidate if they do not merge.
  uint64_t candidate_at(int32_t at);
  void merge_at(int32_t at);
  void offer(int32_t at);

  const Bpe& bpe_;
  std::vector<Symbol> symbols_;
  // A candidate is 64 bits, rank above index, so the smallest merges first. Candidates of the
  // word's initial symbols are sorted; those created by merges are in a heap.
  static constexpr uint64_t kNoCandidate = UINT64_MAX;
  std::vector<uint64_t> first_, heap_;
  bool unknown_pending_ = false;
  // Cached words: their ids are [begin, end) of remembered_.
  std::unordered_map<std::string, std::pair<uint32_t, uint32_t>, Hash, std::equal_to<>> words_;
  std::vector<int32_t> remembered_;
};

}  // namespace fasa::text
