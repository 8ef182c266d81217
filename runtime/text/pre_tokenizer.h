// Pre-tokenizers of the supported families, which split a normalized text into words before merges.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/text/mapped_text.h"

namespace fasa::text {

// A text and its non-empty words, in order; text between words is dropped.
struct Words {
  MappedText text;
  std::vector<Span> spans;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Words& words) const = 0;
};

// Split, ByteLevel, Digits, Punctuation, Metaspace and sequences of them, applied in order.
class PreTokenizerChain {
 public:
  // `part`: the "pre_tokenizer" of a tokenizer.json; null: the text is one word. Throws InputError
  // for any other pre-tokenizer.
  PreTokenizerChain(const nlohmann::json& part, const std::string& place);

  Words apply(MappedText text) const;
  // Whether splitting depends on a text's position in the prompt; its origins are then required.
  bool needs_origins() const { return needs_origins_; }

 private:
  std::vector<std::unique_ptr<const PreTokenizer>> steps_;
  bool needs_origins_ = false;
};

}  // namespace fasa::text
