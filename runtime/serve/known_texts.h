// Token ids of earlier texts. Encoding an answer's text may give other tokens than the model chose.
// If a prompt begins like an answer of this server, the original ids are used as far as both agree,
// so that the cache's prefix matches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer.h"

namespace fasa::serve {

// An answer in a text, with calls.
struct KnownAnswer {
  struct Call {
    std::string id, name, arguments;  // JSON
  };
  size_t begin = 0, end = 0;  // in bytes of the text
  size_t said = 0;            // where its reasoning has ended
  std::string content;
  std::vector<Call> calls;
};

// A text and its ids.
struct KnownText {
  // A control token of `size` bytes begins behind this many bytes and ids.
  struct Cut {
    size_t bytes = 0;
    size_t ids = 0;
    size_t size = 0;
  };

  // Takes a while for a long text.
  KnownText(const text::Tokenizer& tokenizer, std::string salt_of, std::string text_of,
            std::vector<int32_t> ids_of);
  size_t bytes() const {
    // An answer's text has these bytes once more.
    size_t said = 0;
    for (const KnownAnswer& answer : answers) said += sizeof(answer) + answer.end - answer.begin;
    return salt.size() + text.size() + ids.size() * sizeof(int32_t) + cuts.size() * sizeof(Cut) +
           messages.size() * sizeof(uint64_t) + said;
  }

  std::string salt;
  std::string text;
  std::vector<int32_t> ids;
  std::vector<Cut> cuts;
  std::vector<uint64_t> messages = {};    // a hash of each that it was rendered from, tools first
  std::vector<KnownAnswer> answers = {};  // those with calls, in order

 private:
  static std::vector<Cut> cuts_of(const text::Tokenizer& tokenizer, std::string_view text,
                                  std::span<const int32_t> ids);
};

// How far a known text stands for a prompt: its first bytes and ids for the prompt's first bytes.
struct KnownBeginning {
  size_t bytes = 0, ids = 0, prompt_bytes = 0;
};

// Where the prompt renders an answer of the text; 0: it does not, or changes it.
using EndOfAnswer = std::function<size_t(const KnownAnswer&)>;

// As far as both agree, up to a control token. Where the prompt only spells calls in another way
// than the model wrote them, the model's text stands for them.
KnownBeginning known_beginning(const KnownText& known, std::string_view prompt,
                               const EndOfAnswer& end_of);

// Not thread-safe.
class KnownTexts {
 public:
  // `bytes`: limit for texts and ids; the least recently used are forgotten.
  explicit KnownTexts(size_t bytes) : max_bytes_(bytes) {}

  void remember(KnownText text);

  // The text of that salt with the longest beginning that the prompt has too, by known_beginning()
  // and then by bytes. Null: none. Valid until the next call.
  const KnownText* find(std::string_view salt, std::string_view prompt);

 private:
  const size_t max_bytes_;
  size_t bytes_ = 0;
  std::list<KnownText> known_;  // most recently used first
};

}  // namespace fasa::serve
