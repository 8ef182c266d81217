// Byte-level tokenizers: one token a byte. Others derive from them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fasa {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Reads tokenizer.json. Returns nullptr when there is none or it is of another kind (only a
  // byte-level BPE without merges and with an entry for each byte is read); prompts are then given
  // as token ids. Throws InputError for a file that is no JSON.
  static std::unique_ptr<Tokenizer> load(const std::string& dir);
  static std::unique_ptr<Tokenizer> parse(std::string_view json, const std::string& name);

  virtual std::vector<int32_t> encode(std::string_view bytes) const;
  // The bytes of a token, "" for an id that stands for none.
  std::string decode(int32_t id) const;
  virtual std::string decode(const std::vector<int32_t>& ids) const;

 private:
  std::array<int32_t, 256> id_of_byte_{};
  std::vector<int16_t> byte_of_id_;  // -1: none
};

}  // namespace fasa
