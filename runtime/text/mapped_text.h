// A stretch of a prompt on its way to the model's pieces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/regex.h"

namespace fasa::text {

// What a normalizer may turn a text of so many bytes into; more is an attack or a mistake.
constexpr size_t max_normalized_bytes(size_t bytes) { return (1 << 20) + 16 * bytes; }

// Valid UTF-8 and where each byte of it came from.
struct MappedText {
  std::string text;
  // For each byte of `text` the byte of the prompt that it stands for (what is put in stands for
  // what it is put before or in place of), rising; empty where not asked for.
  std::vector<uint32_t> origins;

  bool is_mapped() const { return !origins.empty(); }
};

// Builds a text out of an older one.
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
  // Bytes that stand for the one at `at`, or for the last where there is none.
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
