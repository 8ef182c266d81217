// Normalizers of the supported families, applied to a text before it is split.
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

// NFC, NFD, Prepend, Replace, Strip and sequences of them, applied in order.
class NormalizerChain {
 public:
  // `part`: the "normalizer" of a tokenizer.json, or null. Throws InputError for any other
  // normalizer.
  NormalizerChain(const nlohmann::json& part, const std::string& place);

  // Throws InputError if the text grows beyond max_normalized_bytes.
  void apply(MappedText& text) const;
  bool is_empty() const { return steps_.empty(); }

 private:
  std::string place_;
  std::vector<std::unique_ptr<const Normalizer>> steps_;
};

}  // namespace fasa::text
