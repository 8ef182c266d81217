// A part of a prompt during normalization and splitting.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/regex.h"

namespace fasa::text {

// Limit on a normalized text's size for an input of this many bytes.
constexpr size_t max_normalized_bytes(size_t bytes) { return (1 << 20) + 16 * bytes; }

// Valid UTF-8, with the source position of each byte.
struct MappedText {
  std::string text;
  // For each byte of `text`, the index of its source byte in the prompt, ascending; inserted bytes
  // count as the byte that they precede or replace. Empty if not requested.
  std::vector<uint32_t> origins;

  bool is_mapped() const { return !origins.empty(); }
};

// Builds a new text from an older one.
class TextBuilder {
 public:
  explicit TextBuilder(const MappedText& from) : from_(from) {
    built_.text.reserve(from.text.size() + from.text.size() / 8);
    if (from.is_mapped()) built_.origins.reserve(from.origins.size());
  }
  void copy(Span span) {
    built_.text.append(from_.text, span.begin, span.size());
    if (!from_.is_mapped()) return;
    const auto begin = from_.origins.begin();
    built_.origins.insert(built_.origins.end(), begin + static_cast<int64_t>(span.begin),
                          begin + static_cast<int64_t>(span.end));
  }
  // Appends bytes whose source is the byte at `at`, or the last byte if there is none.
  void put(std::string_view bytes, size_t at) {
    built_.text += bytes;
    if (!from_.is_mapped()) return;
    const uint32_t origin = at < from_.origins.size() ? from_.origins[at] : from_.origins.back();
    built_.origins.insert(built_.origins.end(), bytes.size(), origin);
  }
  size_t size() const { return built_.text.size(); }
  MappedText take() { return std::move(built_); }

 private:
  const MappedText& from_;
  MappedText built_;
};

}  // namespace fasa::text
