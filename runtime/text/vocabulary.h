// The pieces of a vocabulary and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fasa::text {

inline constexpr int32_t kMaxTokenId = (1 << 23) - 1;
inline constexpr size_t kMaxPieceBytes = 1 << 16;
inline constexpr size_t kMaxPieces = 1 << 21;

// Filled, then sealed; then immutable and thread-safe.
class Vocabulary {
 public:
  // `place`: the vocabulary's location in its file, for errors. Throws InputError for a piece or an
  // id beyond the limits.
  void add(std::string_view piece, int64_t id, const std::string& place);
  // A piece with the text of an earlier one: its id decodes, but find() gives the earlier id. Call
  // after all add().
  void add_duplicate(std::string_view piece, int64_t id, const std::string& place);
  // Throws InputError for a duplicate id, and for a piece that occurs twice in add().
  void seal(const std::string& place);

  std::optional<int32_t> find(std::string_view piece) const;
  bool has(int32_t id) const { return index(id) != nullptr; }
  std::string_view piece(int32_t id) const;  // "" for an unused id
  // One more than the largest id.
  int32_t end_id() const { return static_cast<int32_t>(by_id_.size()); }
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    uint32_t begin, bytes;  // in bytes_
    int32_t id;
  };
  static constexpr uint32_t kNone = UINT32_MAX;
  const Entry* index(int32_t id) const;
  std::string_view text(const Entry& entry) const {
    return {bytes_.data() + entry.begin, entry.bytes};
  }

  std::vector<char> bytes_;
  std::vector<Entry> entries_;
  size_t duplicates_ = 0;        // at the end of entries_
  std::vector<uint32_t> by_id_;  // indexes in entries_, kNone for gaps
  std::vector<uint32_t> slots_;  // the same, hashed by piece; size is a power of two
};

}  // namespace fasa::text
