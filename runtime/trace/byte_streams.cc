#include "runtime/trace/byte_streams.h"

#include <fmt/format.h>
#include <zstd.h>

#include "runtime/base/error.h"

namespace fasa {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr int kLevel = 19;
// A frame expands to at most this many times its bytes: more is a broken file.
constexpr uint64_t kMaxRatio = 1 << 15;

std::string expand(std::string_view frame, const std::string& what) {
  const uint64_t size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN ||
      size > frame.size() * kMaxRatio) {
    throw InputError(fmt::format("{}: not a zstd frame of known size", what));
  }
  std::string bytes(size, '\0');
  const size_t done = ZSTD_decompress(bytes.data(), bytes.size(), frame.data(), frame.size());
  if (ZSTD_isError(done) != 0 || done != size) {
    throw InputError(fmt::format("{}: a broken zstd frame", what));
  }
  return bytes;
}

}  // namespace

void StreamWriter::varint(uint32_t value) {
  for (; value >= 0x80; value >>= 7) byte(static_cast<uint8_t>(value | 0x80));
  byte(static_cast<uint8_t>(value));
}

void StreamWriter::bit(bool value) {
  if (bits_ == 0) byte(0);
  if (value) bytes_.back() = static_cast<char>(bytes_.back() | 1 << bits_);
  bits_ = (bits_ + 1) % 8;
}

void StreamReader::fail(const std::string& why) const {
  throw InputError(fmt::format("{}: byte {} of {}: {}; record it again with fasa trace", what_,
                               offset_, bytes_.size(), why));
}

uint8_t StreamReader::byte() {
  if (at_end()) fail("the stream ends too early");
  return static_cast<uint8_t>(bytes_[offset_++]);
}

int32_t StreamReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift <= 28; shift += 7) {
    const uint8_t next = byte();
    value |= uint64_t{next & 0x7fu} << shift;
    if (next >= 0x80) continue;
    if (value > INT32_MAX) break;
    return static_cast<int32_t>(value);
  }
  fail(fmt::format("a value beyond {}", INT32_MAX));
}

bool StreamReader::bit() {
  if (bits_ == 0) {
    last_ = byte();
    bits_ = 8;
  }
  return (last_ >> (8 - bits_--) & 1) != 0;
}

std::string compress_streams(const std::vector<StreamWriter>& streams) {
  std::string out;
  for (const StreamWriter& stream : streams) {
    const std::string& bytes = stream.bytes();
    std::string frame(ZSTD_compressBound(bytes.size()), '\0');
    frame.resize(ZSTD_compress(frame.data(), frame.size(), bytes.data(), bytes.size(), kLevel));
    for (size_t i = 0; i < kLengthBytes; ++i) {
      out.push_back(static_cast<char>(frame.size() >> (8 * i)));
    }
    out += frame;
  }
  return out;
}

std::vector<StreamReader> expand_streams(std::string_view bytes, size_t count,
                                         const std::string& name) {
  std::vector<StreamReader> streams;
  for (size_t stream = 0; stream < count; ++stream) {
    std::string what = fmt::format("{}: stream {}", name, stream);
    if (bytes.size() < kLengthBytes) throw InputError(what + ": the file ends before it");
    size_t length = 0;
    for (size_t i = 0; i < kLengthBytes; ++i) {
      length |= size_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    }
    bytes.remove_prefix(kLengthBytes);
    if (length > bytes.size()) {
      throw InputError(fmt::format("{}: the file ends within its {} bytes", what, length));
    }
    std::string content = expand(bytes.substr(0, length), what);
    streams.emplace_back(std::move(content), std::move(what));
    bytes.remove_prefix(length);
  }
  if (!bytes.empty()) {
    throw InputError(fmt::format("{}: {} bytes follow the last stream", name, bytes.size()));
  }
  return streams;
}

}  // namespace fasa
