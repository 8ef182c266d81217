// How a normalized text is cut into words before merges: the pre-tokenizers that the supported
// families use.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/text/mapped_text.h"

namespace fasa::text {

// A text and its words, in order and none empty; what lies between two words is dropped.
struct Words {
  MappedText text;
  std::vector<Span> spans;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Words& words) const = 0;
};

// Split, ByteLevel, Digits, Punctuation, Metaspace and sequences of them, one after another.
class PreTokenizerChain {
 public:
  // `part`: the "pre_tokenizer" of a tokenizer.json, null for none: a text is one word then. Throws
  // InputError for any other.
  PreTokenizerChain(const nlohmann::json& part, const std::string& place);

  Words apply(MappedText text) const;
  // Whether words depend on where in the prompt a text stands: its origins are needed then.
  bool needs_origins() const { return needs_origins_; }

 private:
  std::vector<std::unique_ptr<const PreTokenizer>> steps_;
  bool needs_origins_ = false;
};

}  // namespace fasa::text
