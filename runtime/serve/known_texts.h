// Token ids of earlier texts. Encoding an answer's text may give other tokens than the model chose.
// If a prompt begins like an answer of this server, the original ids are used as far as both agree,
// so that the cache's prefix matches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer.h"

namespace fasa::serve {

// Not thread-safe.
class KnownTexts {
 public:
  // `bytes`: limit for texts and ids; the least recently used are forgotten.
  KnownTexts(size_t bytes, const text::Tokenizer& tokenizer)
      : max_bytes_(bytes), tokenizer_(tokenizer) {}

  void remember(std::string salt, std::string text, std::vector<int32_t> ids);

  struct Beginning {
    size_t bytes = 0;                   // of the prompt
    std::span<const int32_t> ids = {};  // that spell them; valid until the next call
  };
  // The longest beginning of `prompt` whose ids a text of that salt has: the whole text, or the
  // part before one of its control tokens that the prompt has too. Empty: none.
  Beginning find(std::string_view salt, std::string_view prompt);

 private:
  // A control token begins behind this many bytes and ids.
  struct Cut {
    size_t bytes = 0;
    size_t ids = 0;
  };
  struct Known {
    std::string salt;
    std::string text;
    std::vector<int32_t> ids;
    std::vector<Cut> cuts = {};
    size_t bytes() const {
      return salt.size() + text.size() + ids.size() * sizeof(int32_t) + cuts.size() * sizeof(Cut);
    }
  };
  std::vector<Cut> cuts_of(std::string_view text, std::span<const int32_t> ids) const;
  Beginning beginning_of(const Known& known, std::string_view prompt) const;

  const size_t max_bytes_;
  const text::Tokenizer& tokenizer_;
  size_t bytes_ = 0;
  std::list<Known> known_;  // most recently used first
};

}  // namespace fasa::serve
