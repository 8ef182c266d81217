#include "runtime/text/bpe.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/text/utf8.h"

namespace fasa::text {
namespace {

constexpr size_t kMaxMerges = 1 << 22;

}  // namespace

void MergeList::add(std::string_view left, std::string_view right, const std::string& place) {
  if (lengths_.size() == kMaxMerges || std::max(left.size(), right.size()) > kMaxPieceBytes) {
    throw InputError(fmt::format(
        "{}[{}]: too many or too long; allowed: up to {} merges of pieces of up to {} bytes", place,
        lengths_.size(), kMaxMerges, kMaxPieceBytes));
  }
  if (left.empty() || right.empty()) {
    throw InputError(
        fmt::format("{}[{}]: a merge with an empty piece becomes itself; allowed: two "
                    "pieces that are not empty",
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
    throw InputError(fmt::format("{}[{}] is \"{}\"; allowed: two pieces and a blank between", place,
                                 lengths_.size(), pair.substr(0, 80)));
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
      throw InputError(
          fmt::format("{}[{}]: \"{}\" is no piece of the vocabulary; allowed: merges of "
                      "two pieces into a third",
                      place, rank, piece.substr(0, 80)));
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
                                   place, options_.unk_token.substr(0, 80)));
    }
  }
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
  // Longer words hardly come again, and a text of words that never do must not grow the memory.
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
      if (!symbol.gone) ids.push_back(symbol.id);
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
  symbols_.push_back({id, place - 1, -1, false});
}

// An unknown character that waits stays behind the bytes, as in Hugging Face's.
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

void WordEncoder::offer(int32_t at) {
  const int32_t next = symbols_[static_cast<size_t>(at)].next;
  if (next < 0) return;
  const Merge* merge = bpe_.merges_.find(symbols_[static_cast<size_t>(at)].id,
                                         symbols_[static_cast<size_t>(next)].id);
  if (merge != nullptr) heap_.push_back({merge->rank, at, merge->id});
}

void WordEncoder::merge() {
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  heap_.clear();
  for (int32_t at = 0; at < static_cast<int32_t>(symbols_.size()); ++at) offer(at);
  std::make_heap(heap_.begin(), heap_.end(), later);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Candidate best = heap_.back();
    heap_.pop_back();
    size_t offered = heap_.size();
    apply(best);
    for (; offered < heap_.size(); ++offered) {
      std::push_heap(heap_.begin(), heap_.begin() + static_cast<int64_t>(offered) + 1, later);
    }
  }
}

// Merges the candidate's two symbols, unless one of them has become another since, and offers what
// the new one may merge with.
void WordEncoder::apply(const Candidate& candidate) {
  Symbol& left = symbols_[static_cast<size_t>(candidate.at)];
  if (left.gone || left.next < 0) return;
  Symbol& right = symbols_[static_cast<size_t>(left.next)];
  const Merge* merge = bpe_.merges_.find(left.id, right.id);
  if (merge == nullptr || merge->id != candidate.id) return;
  left.id = candidate.id;
  left.next = right.next;
  right.gone = true;
  if (left.next >= 0) symbols_[static_cast<size_t>(left.next)].previous = candidate.at;
  if (left.previous >= 0) offer(left.previous);
  offer(candidate.at);
}

}  // namespace fasa::text
