// Limits on one rendering, because templates are untrusted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fasa::jinja {

struct Limits {
  // Steps: one per evaluated node, and one per 256 bytes or 8 items created or read. The largest
  // published template takes about 5,000 for a conversation of four messages.
  uint64_t steps = 50'000'000;
  int depth = 64;                   // of nested blocks, brackets, macro calls and lists
  size_t output_bytes = 64u << 20;  // of the prompt, and of each text made for it
  size_t value_bytes = 512u << 20;  // of all texts, lists and dicts that exist at one time
};

// Bytes of existing values. Must outlive the values that it counts.
class ByteCount {
 public:
  explicit ByteCount(size_t limit) : limit_(limit) {}
  ByteCount(const ByteCount&) = delete;  // values point to it
  ByteCount& operator=(const ByteCount&) = delete;

  bool take(size_t bytes) {
    if (bytes > limit_ - used_) return false;
    used_ += bytes;
    return true;
  }
  void give_back(size_t bytes) { used_ -= bytes; }

 private:
  size_t limit_;
  size_t used_ = 0;
};

// A value's share of a count, subtracted when the value is destroyed.
class HeldBytes {
 public:
  HeldBytes() = default;
  HeldBytes(ByteCount* count, size_t bytes) : count_(count), bytes_(bytes) {}
  HeldBytes(HeldBytes&& other) noexcept : count_(other.count_), bytes_(other.bytes_) {
    other.count_ = nullptr;
  }
  HeldBytes& operator=(HeldBytes&& other) noexcept {
    if (this != &other) {
      release();
      count_ = other.count_;
      bytes_ = other.bytes_;
      other.count_ = nullptr;
    }
    return *this;
  }
  ~HeldBytes() { release(); }

 private:
  void release() {
    if (count_ != nullptr) count_->give_back(bytes_);
    count_ = nullptr;
  }

  ByteCount* count_ = nullptr;  // null: not counted, as in a context
  size_t bytes_ = 0;
};

}  // namespace fasa::jinja
