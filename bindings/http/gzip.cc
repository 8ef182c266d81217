#include "bindings/http/gzip.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/zlib/inflate_stream.hpp>
#include <boost/crc.hpp>
#include <cstdint>

#include "bindings/http/api_error.h"

namespace fasa::serve {
namespace {

namespace zlib = boost::beast::zlib;

[[noreturn]] void damaged() {
  throw ApiError(400, "invalid_request_error",
                 "body: the data is not valid gzip, as Content-Encoding says", "", "invalid_gzip");
}

// Reads the bytes of a member in order.
class Bytes {
 public:
  explicit Bytes(std::string_view data) : data_(data) {}

  size_t left() const { return data_.size(); }
  std::string_view take(size_t count) {
    if (count > data_.size()) damaged();
    const std::string_view taken = data_.substr(0, count);
    data_.remove_prefix(count);
    return taken;
  }
  uint32_t number(size_t bytes) {  // little endian
    uint32_t value = 0;
    const std::string_view taken = take(bytes);
    for (size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(taken[i]);
    return value;
  }
  void skip_text() {
    while (take(1)[0] != '\0') continue;
  }
  std::string_view data() const { return data_; }

 private:
  std::string_view data_;
};

// RFC 1952.
void read_header(Bytes& bytes) {
  constexpr uint32_t kMagic = 0x8b1f, kDeflate = 8;
  constexpr uint32_t kHeaderCrc = 2, kExtra = 4, kName = 8, kComment = 16, kReserved = 0xe0;
  if (bytes.number(2) != kMagic || bytes.number(1) != kDeflate) damaged();
  const uint32_t flags = bytes.number(1);
  if ((flags & kReserved) != 0) damaged();
  bytes.take(6);  // time, level, system
  if ((flags & kExtra) != 0) bytes.take(bytes.number(2));
  if ((flags & kName) != 0) bytes.skip_text();
  if ((flags & kComment) != 0) bytes.skip_text();
  if ((flags & kHeaderCrc) != 0) bytes.take(2);
}

void inflate(Bytes& bytes, std::string& text, size_t max_bytes) {
  constexpr size_t kPiece = size_t{64} << 10;
  zlib::inflate_stream stream;
  zlib::z_params state;
  state.next_in = bytes.data().data();
  state.avail_in = bytes.data().size();
  for (boost::system::error_code error; error != zlib::error::end_of_stream;) {
    const size_t had = text.size();
    if (had > max_bytes) {
      throw ApiError(413, "invalid_request_error",
                     fmt::format("body: more than {} bytes when unpacked", max_bytes));
    }
    text.resize(had + kPiece);
    state.next_out = text.data() + had;
    state.avail_out = kPiece;
    stream.write(state, zlib::Flush::sync, error);
    text.resize(text.size() - state.avail_out);
    const bool stuck = text.size() == had && error != zlib::error::end_of_stream;
    if ((error && error != zlib::error::end_of_stream) || stuck) damaged();
  }
  bytes.take(bytes.left() - state.avail_in);
}

}  // namespace

std::string gunzip(std::string_view packed, size_t max_bytes) {
  std::string text;
  Bytes bytes(packed);
  do {
    read_header(bytes);
    const size_t begin = text.size();
    inflate(bytes, text, max_bytes);
    boost::crc_32_type crc;
    crc.process_bytes(text.data() + begin, text.size() - begin);
    const bool good = bytes.number(4) == crc.checksum() &&
                      bytes.number(4) == static_cast<uint32_t>(text.size() - begin);
    if (!good) damaged();
  } while (bytes.left() > 0);
  return text;
}

}  // namespace fasa::serve
