// Text that records, for each byte, whether the template or a user wrote it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fasa::jinja {

enum class Origin : uint8_t { kTemplate, kUser };

// UTF-8 bytes and runs of one origin. Value semantics: copies are independent.
class MarkedText {
 public:
  struct Run {
    size_t end;  // end offset of the run, exclusive
    Origin origin;
  };

  MarkedText() = default;
  MarkedText(std::string_view bytes, Origin origin) { append(bytes, origin); }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::vector<Run>& runs() const { return runs_; }  // in order, non-empty, origins alternate

  void append(std::string_view bytes, Origin origin);
  void append(const MarkedText& other) { append(other, 0, other.size()); }
  // Appends bytes [begin, end) of another text, not of this one.
  void append(const MarkedText& other, size_t begin, size_t end);
  MarkedText part(size_t begin, size_t end) const;
  Origin origin_at(size_t offset) const;  // offset < size()

 private:
  std::string bytes_;
  std::vector<Run> runs_;
};

}  // namespace fasa::jinja
