// Metadata keys of a GGUF file's architecture.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/llm/gguf/gguf_header.h"

namespace fasa {

// Reads metadata keys with an architecture's prefix.
class GgufKeys {
 public:
  static constexpr int64_t kMax = int64_t{1} << 30;  // of integers

  GgufKeys(const GgufHeader& header, std::string_view architecture)
      : header_(header), prefix_(std::string(architecture) + ".") {}
  std::string name(std::string_view key) const { return prefix_ + std::string(key); }
  int64_t integer(std::string_view key) const { return header_.integer(name(key), 1, kMax); }
  int64_t integer_or(std::string_view key, int64_t otherwise, int64_t low = 1) const {
    return header_.integer_or(name(key), low, kMax, otherwise);
  }
  bool has(std::string_view key) const { return header_.has(name(key)); }
  bool has_array(std::string_view key) const { return header_.has_array(name(key)); }
  std::vector<bool> flags(std::string_view key) const { return header_.flags(name(key)); }
  // One value for all layers, or one per layer.
  std::vector<int64_t> integers(std::string_view key, size_t layers) const {
    if (!has_array(key)) return std::vector<int64_t>(layers, integer(key));
    const std::vector<double> all = header_.numbers(name(key));
    if (all.size() != layers) fail(key, "one number per layer");
    std::vector<int64_t> values;
    for (const double value : all) {
      if (!(value >= 1 && value <= static_cast<double>(kMax))) fail(key, "numbers from 1");
      values.push_back(static_cast<int64_t>(value));
    }
    return values;
  }
  double number(std::string_view key) const { return header_.number(name(key)); }
  double number_or(std::string_view key, double otherwise) const {
    return header_.number_or(name(key), otherwise);
  }
  std::string text_or(std::string_view key, std::string_view otherwise) const {
    return std::string(header_.text(name(key)).value_or(otherwise));
  }
  [[noreturn]] void fail(std::string_view key, std::string_view allowed) const {
    header_.fail(name(key), allowed);
  }

 private:
  const GgufHeader& header_;
  std::string prefix_;
};

}  // namespace fasa
