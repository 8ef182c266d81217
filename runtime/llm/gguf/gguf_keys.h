// Metadata keys of a GGUF file's architecture.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/llm/gguf/gguf_header.h"

namespace fasa {

// A float as configs write it: 1e-5, not 9.99999975e-6.
double six_digits(double value);

// Reads metadata keys with an architecture's prefix, and knows which ones were read.
class GgufKeys {
 public:
  static constexpr int64_t kMax = int64_t{1} << 30;  // of integers

  GgufKeys(const GgufHeader& header, std::string_view architecture)
      : header_(header), prefix_(std::string(architecture) + ".") {}
  std::string name(std::string_view key) const { return prefix_ + std::string(key); }
  // A number, or an array of equal numbers, one per layer; in arrays, 0 is that of layers without
  // such a part.
  int64_t integer(std::string_view key) const { return integer_from(key, 1); }
  int64_t integer_or(std::string_view key, int64_t otherwise, int64_t low = 1) const {
    return has(key) ? integer_from(key, low) : otherwise;
  }
  bool has(std::string_view key) const { return header_.has(read(key)); }
  bool has_array(std::string_view key) const { return header_.has_array(read(key)); }
  // One flag per layer.
  std::vector<bool> flags(std::string_view key, size_t layers) const;
  // One value for all layers, or one per layer.
  std::vector<int64_t> integers(std::string_view key, size_t layers) const;
  double number(std::string_view key) const { return header_.number(read(key)); }
  double number_or(std::string_view key, double otherwise) const {
    return header_.number_or(read(key), otherwise);
  }
  bool boolean_or(std::string_view key, bool otherwise) const {
    return header_.boolean_or(read(key), otherwise);
  }
  std::string text_or(std::string_view key, std::string_view otherwise) const {
    return std::string(header_.text(read(key)).value_or(otherwise));
  }
  [[noreturn]] void fail(std::string_view key, std::string_view allowed) const {
    header_.fail(name(key), allowed);
  }
  // Keys of the architecture that were not asked for, without its prefix.
  std::vector<std::string> unread() const;

 private:
  std::string read(std::string_view key) const;
  int64_t integer_from(std::string_view key, int64_t low) const;

  const GgufHeader& header_;
  std::string prefix_;
  mutable std::set<std::string> read_;
};

}  // namespace fasa
