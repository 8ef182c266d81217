// Streams of bytes that are compressed one by one: each holds values of one kind, so that the
// compressor sees their distribution.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fasa {

class StreamWriter {
 public:
  void byte(uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
  // Seven bits a byte, low bits first.
  void varint(uint32_t value);
  // Eight bits a byte, low bits first. A stream holds bits or bytes, not both.
  void bit(bool value);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  int bits_ = 0;  // used of the last byte
};

// Throws InputError at the end of the stream and for values out of range.
class StreamReader {
 public:
  // `what` names the stream in errors.
  StreamReader(std::string bytes, std::string what)
      : bytes_(std::move(bytes)), what_(std::move(what)) {}

  uint8_t byte();
  int32_t varint();  // at most 31 bits
  bool bit();
  bool at_end() const { return offset_ == bytes_.size(); }
  [[noreturn]] void fail(const std::string& why) const;

 private:
  std::string bytes_;
  std::string what_;
  size_t offset_ = 0;
  uint8_t last_ = 0;  // the byte whose bits are being read
  int bits_ = 0;      // left of it
};

// Zstandard frames, each behind its length (32 bits, little-endian).
std::string compress_streams(const std::vector<StreamWriter>& streams);
// Throws InputError unless `bytes` are exactly `count` frames.
std::vector<StreamReader> expand_streams(std::string_view bytes, size_t count,
                                         const std::string& name);

}  // namespace fasa
