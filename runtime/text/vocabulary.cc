#include "runtime/text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace fasa::text {
namespace {

size_t slot_of(std::string_view piece, size_t slots) {
  return std::hash<std::string_view>()(piece) & (slots - 1);
}

}  // namespace

void Vocabulary::add(std::string_view piece, int64_t id, const std::string& place) {
  if (piece.size() > kMaxPieceBytes) {
    throw InputError(fmt::format("{}: a piece has {} bytes (\"{}...\"); allowed: up to {}", place,
                                 piece.size(), cut_text(piece, 40), kMaxPieceBytes));
  }
  if (id < 0 || id > kMaxTokenId) {
    throw InputError(fmt::format("{}: \"{}\" has id {}; allowed: 0 to {}", place,
                                 cut_text(piece, 80), id, kMaxTokenId));
  }
  if (entries_.size() == kMaxPieces) {
    throw InputError(fmt::format("{}: too many pieces; allowed: {}", place, kMaxPieces));
  }
  entries_.push_back({static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(piece.size()),
                      static_cast<int32_t>(id)});
  bytes_.insert(bytes_.end(), piece.begin(), piece.end());
}

void Vocabulary::add_duplicate(std::string_view piece, int64_t id, const std::string& place) {
  add(piece, id, place);
  ++duplicates_;
}

void Vocabulary::seal(const std::string& place) {
  int32_t end = 0;
  for (const Entry& entry : entries_) end = std::max(end, entry.id + 1);
  by_id_.assign(static_cast<size_t>(end), kNone);
  slots_.assign(std::bit_ceil(2 * entries_.size() + 1), kNone);
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    uint32_t& index_of_id = by_id_[static_cast<size_t>(entry.id)];
    if (index_of_id != kNone) {
      throw InputError(fmt::format(
          "{}: id {} belongs to two pieces, \"{}\" and \"{}\"; allowed: one", place, entry.id,
          cut_text(text(entries_[index_of_id]), 80), cut_text(text(entry), 80)));
    }
    index_of_id = i;
    if (i >= entries_.size() - duplicates_) continue;
    size_t slot = slot_of(text(entry), slots_.size());
    while (slots_[slot] != kNone) {
      if (text(entries_[slots_[slot]]) == text(entry)) {
        throw InputError(fmt::format("{}: \"{}\" occurs twice; allowed: once", place,
                                     cut_text(text(entry), 80)));
      }
      slot = (slot + 1) & (slots_.size() - 1);
    }
    slots_[slot] = i;
  }
}

std::optional<int32_t> Vocabulary::find(std::string_view piece) const {
  if (slots_.empty()) return std::nullopt;
  size_t slot = slot_of(piece, slots_.size());
  for (; slots_[slot] != kNone; slot = (slot + 1) & (slots_.size() - 1)) {
    const Entry& entry = entries_[slots_[slot]];
    if (text(entry) == piece) return entry.id;
  }
  return std::nullopt;
}

const Vocabulary::Entry* Vocabulary::index(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= by_id_.size()) return nullptr;
  const uint32_t place = by_id_[static_cast<size_t>(id)];
  return place == kNone ? nullptr : &entries_[place];
}

std::string_view Vocabulary::piece(int32_t id) const {
  const Entry* entry = index(id);
  return entry == nullptr ? std::string_view() : text(*entry);
}

}  // namespace fasa::text
