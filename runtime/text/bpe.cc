#include "runtime/text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace fasa::text {
namespace {

constexpr size_t kMaxMerges = 1 << 22;

// Every piece that looks like a byte must be one: decoding cannot read <0x-1>.
void check_byte_pieces(const Vocabulary& vocabulary, const std::string& place) {
  for (int32_t id = 0; id < vocabulary.end_id(); ++id) {
    const std::string_view piece = vocabulary.piece(id);
    if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') continue;
    if (piece.substr(3, 2).find_first_not_of("0123456789abcdefABCDEF") == piece.npos) continue;
    throw InputError(
        fmt::format("{}.vocab: \"{}\" is not a byte; allowed: <0x00> to <0xFF>", place, piece));
  }
}

}  // namespace

void MergeList::add(std::string_view left, std::string_view right, const std::string& place) {
  if (lengths_.size() == kMaxMerges || std::max(left.size(), right.size()) > kMaxPieceBytes) {
    throw InputError(
        fmt::format("{}[{}]: too many merges, or a piece too long; allowed: up to {} merges, of "
                    "pieces of up to {} bytes",
                    place, lengths_.size(), kMaxMerges, kMaxPieceBytes));
  }
  if (left.empty() || right.empty()) {
    throw InputError(
        fmt::format("{}[{}]: a piece of the merge is empty; allowed: two pieces that are not empty",
                    place, lengths_.size()));
  }
  lengths_.push_back({static_cast<uint32_t>(left.size()), static_cast<uint32_t>(right.size())});
  bytes_.insert(bytes_.end(), left.begin(), left.end());
  bytes_.insert(bytes_.end(), right.begin(), right.end());
}

void MergeList::add(std::string_view pair, const std::string& place) {
  if (pair.starts_with("#version")) return;
  const size_t blank = pair.find(' ');
  if (blank == std::string_view::npos || pair.find(' ', blank + 1) != std::string_view::npos) {
    throw InputError(fmt::format("{}[{}] is \"{}\"; allowed: two pieces separated by a space",
                                 place, lengths_.size(), cut_text(pair, 80)));
  }
  add(pair.substr(0, blank), pair.substr(blank + 1), place);
}

MergeTable MergeList::table(const Vocabulary& vocabulary, const std::string& place) const {
  MergeTable table(lengths_.size());
  const char* at = bytes_.data();
  for (uint32_t rank = 0; rank < lengths_.size(); ++rank) {
    const Lengths lengths = lengths_[rank];
    const auto id_of = [&](std::string_view piece) {
      const auto id = vocabulary.find(piece);
      if (id) return *id;
      throw InputError(fmt::format(
          "{}[{}]: \"{}\" is not in the vocabulary; allowed: merges of two pieces into a third",
          place, rank, cut_text(piece, 80)));
    };
    const int32_t left = id_of({at, lengths.left});
    const int32_t right = id_of({at + lengths.left, lengths.right});
    table.set(left, right, {rank, id_of({at, size_t{lengths.left} + lengths.right})});
    at += lengths.left + lengths.right;
  }
  return table;
}

Bpe::Bpe(Vocabulary vocabulary, MergeTable merges, BpeOptions options, const std::string& place)
    : vocabulary_(std::move(vocabulary)),
      merges_(std::move(merges)),
      options_(std::move(options)),
      low_ids_(kLowCharacters, -1) {
  if (!options_.unk_token.empty()) {
    unk_id_ = vocabulary_.find(options_.unk_token);
    if (!unk_id_) {
      throw InputError(fmt::format("{}.unk_token is \"{}\"; allowed: a piece of the vocabulary",
                                   place, cut_text(options_.unk_token, 80)));
    }
  }
  check_byte_pieces(vocabulary_, place);
  for (unsigned byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
  for (char32_t character = 0; character < kLowCharacters; ++character) {
    std::string utf8;
    append_utf8(utf8, character);
    low_ids_[character] = vocabulary_.find(utf8).value_or(-1);
  }
}

int32_t Bpe::id_of_character(std::string_view character) const {
  const char32_t code_point = code_point_at(character, 0);
  if (code_point < kLowCharacters) return low_ids_[code_point];
  return vocabulary_.find(character).value_or(-1);
}

void WordEncoder::append(std::string_view word, std::vector<int32_t>& ids) {
  // Longer words are not cached: they rarely recur, and memory must not grow with unique words.
  constexpr size_t kMaxRememberedBytes = 256;
  constexpr size_t kMaxRemembered = 1 << 17;
  if (word.empty()) return;
  const auto known = words_.find(word);
  if (known != words_.end()) {
    const auto [begin, end] = known->second;
    ids.insert(ids.end(), remembered_.begin() + begin, remembered_.begin() + end);
    return;
  }
  const size_t before = ids.size();
  const auto whole = bpe_.options_.ignore_merges ? bpe_.vocabulary_.find(word) : std::nullopt;
  if (whole) {
    ids.push_back(*whole);
  } else {
    split(word);
    merge();
    for (const Symbol& symbol : symbols_) {
      if (symbol.id >= 0) ids.push_back(symbol.id);
    }
  }
  if (word.size() > kMaxRememberedBytes || words_.size() == kMaxRemembered) return;
  const auto begin = static_cast<uint32_t>(remembered_.size());
  remembered_.insert(remembered_.end(), ids.begin() + static_cast<int64_t>(before), ids.end());
  words_.emplace(word, std::pair{begin, static_cast<uint32_t>(remembered_.size())});
}

void WordEncoder::split(std::string_view word) {
  symbols_.clear();
  unknown_pending_ = false;
  for (size_t at = 0; at < word.size();) {
    const std::string_view character = word.substr(at, utf8_bytes(word[at]));
    at += character.size();
    const int32_t id = bpe_.id_of_character(character);
    if (id >= 0) {
      if (unknown_pending_) add_symbol(*bpe_.unk_id_);
      unknown_pending_ = false;
      add_symbol(id);
    } else if (!add_bytes(character)) {
      add_unknown();
    }
  }
  if (unknown_pending_) add_symbol(*bpe_.unk_id_);
}

void WordEncoder::add_symbol(int32_t id) {
  const auto place = static_cast<int32_t>(symbols_.size());
  if (place > 0) symbols_.back().next = place;
  symbols_.push_back({.id = id, .previous = place - 1, .next = -1});
}

// A pending unknown character is output after the bytes, as in Hugging Face.
bool WordEncoder::add_bytes(std::string_view character) {
  if (!bpe_.options_.byte_fallback) return false;
  for (const char byte : character) {
    if (bpe_.byte_ids_[static_cast<unsigned char>(byte)] < 0) return false;
  }
  for (const char byte : character) add_symbol(bpe_.byte_ids_[static_cast<unsigned char>(byte)]);
  return true;
}

void WordEncoder::add_unknown() {
  if (!bpe_.unk_id_) return;
  if (unknown_pending_ && !bpe_.options_.fuse_unk) add_symbol(*bpe_.unk_id_);
  unknown_pending_ = true;
}

uint64_t WordEncoder::candidate_at(int32_t at) {
  Symbol& left = symbols_[static_cast<size_t>(at)];
  left.merge_rank = kNoMerge;
  if (left.next < 0) return kNoCandidate;
  const Merge* merge = bpe_.merges_.find(left.id, symbols_[static_cast<size_t>(left.next)].id);
  if (merge == nullptr) return kNoCandidate;
  left.merge_rank = merge->rank;
  left.merge_id = merge->id;
  return uint64_t{merge->rank} << 32 | static_cast<uint32_t>(at);
}

void WordEncoder::offer(int32_t at) {
  const uint64_t candidate = candidate_at(at);
  if (candidate == kNoCandidate) return;
  heap_.push_back(candidate);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void WordEncoder::merge() {
  first_.clear();
  heap_.clear();
  for (int32_t at = 0; at < static_cast<int32_t>(symbols_.size()); ++at) {
    const uint64_t candidate = candidate_at(at);
    if (candidate != kNoCandidate) first_.push_back(candidate);
  }
  std::sort(first_.begin(), first_.end());
  size_t next = 0;
  while (next < first_.size() || !heap_.empty()) {
    uint64_t best;
    if (heap_.empty() || (next < first_.size() && first_[next] < heap_.front())) {
      best = first_[next++];
    } else {
      best = heap_.front();
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      heap_.pop_back();
    }
    // Skip stale candidates: their symbols have changed, so their rank has too.
    const auto at = static_cast<int32_t>(best & UINT32_MAX);
    if (symbols_[static_cast<size_t>(at)].merge_rank == best >> 32) merge_at(at);
  }
}

void WordEncoder::merge_at(int32_t at) {
  Symbol& left = symbols_[static_cast<size_t>(at)];
  Symbol& right = symbols_[static_cast<size_t>(left.next)];
  left.id = left.merge_id;
  left.next = right.next;
  right.id = -1;
  right.merge_rank = kNoMerge;
  if (left.next >= 0) symbols_[static_cast<size_t>(left.next)].previous = at;
  if (left.previous >= 0) offer(left.previous);
  offer(at);
}

}  // namespace fasa::text
