// Text that remembers which of its bytes the template wrote and which a user did.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fasa::jinja {

enum class Origin : uint8_t { kTemplate, kUser };

// UTF-8 bytes and runs of one origin. A value: copies are independent.
class MarkedText {
 public:
  struct Run {
    size_t end;  // offset behind the run's last byte
    Origin origin;
  };

  MarkedText() = default;
  MarkedText(std::string_view bytes, Origin origin) { append(bytes, origin); }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::vector<Run>& runs() const { return runs_; }  // in order, none empty, neighbours differ

  void append(std::string_view bytes, Origin origin);
  void append(const MarkedText& other) { append(other, 0, other.size()); }
  // Bytes [begin, end) of another text, which is not this one.
  void append(const MarkedText& other, size_t begin, size_t end);
  MarkedText part(size_t begin, size_t end) const;
  Origin origin_at(size_t offset) const;  // offset < size()

 private:
  std::string bytes_;
  std::vector<Run> runs_;
};

}  // namespace fasa::jinja
