// What is done to a text before it is split: the normalizers that the supported families use.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/text/mapped_text.h"

namespace fasa::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual MappedText apply(const MappedText& text) const = 0;
};

// NFC, NFD, Prepend, Replace, Strip and sequences of them, one after another.
class NormalizerChain {
 public:
  // `part`: the "normalizer" of a tokenizer.json, null for none. Throws InputError for any other.
  NormalizerChain(const nlohmann::json& part, const std::string& place);

  // Throws InputError where the text grows beyond max_normalized_bytes.
  void apply(MappedText& text) const;
  bool is_empty() const { return steps_.empty(); }

 private:
  std::string place_;
  std::vector<std::unique_ptr<const Normalizer>> steps_;
};

}  // namespace fasa::text
