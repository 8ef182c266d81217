#include "runtime/text/byte_alphabet.h"

#include "runtime/base/utf8.h"

namespace fasa::text {

const ByteAlphabet& ByteAlphabet::get() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

ByteAlphabet::ByteAlphabet() {
  byte_of_.fill(-1);
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    const char32_t character = printable ? byte : next++;
    byte_of_[character] = static_cast<int16_t>(byte);
    std::string utf8;
    append_utf8(utf8, character);
    letters_[byte] = {{utf8[0], utf8.size() == 2 ? utf8[1] : '\0'},
                      static_cast<unsigned char>(utf8.size())};
  }
}

std::optional<std::string> ByteAlphabet::bytes_of(std::string_view text) const {
  std::string bytes;
  for (size_t at = 0; at < text.size(); at += utf8_bytes(text[at])) {
    const char32_t character = code_point_at(text, at);
    if (character >= kCharacters || byte_of_[character] < 0) return std::nullopt;
    bytes += static_cast<char>(byte_of_[character]);
  }
  return bytes;
}

}  // namespace fasa::text
