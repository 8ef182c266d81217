// The characters with which ByteLevel vocabularies (GPT-2's) write bytes: printable Latin-1 as
// itself, the other bytes, in order, as characters from U+0100.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace fasa::text {

class ByteAlphabet {
 public:
  static const ByteAlphabet& get();

  void append(char byte, std::string& text) const {
    const Letter& letter = letters_[static_cast<unsigned char>(byte)];
    text.append(letter.utf8.data(), letter.bytes);
  }
  // The bytes that a valid text spells; nullopt if a character is not in the alphabet.
  std::optional<std::string> bytes_of(std::string_view text) const;

 private:
  ByteAlphabet();
  struct Letter {
    std::array<char, 2> utf8;
    unsigned char bytes;
  };
  static constexpr size_t kCharacters = 0x144;  // the last is U+0143
  std::array<Letter, 256> letters_;
  std::array<int16_t, kCharacters> byte_of_;  // -1: none
};

}  // namespace fasa::text
