#include "runtime/llm/gguf/gguf_keys.h"

#include <fmt/format.h>

#include <cstdlib>

namespace fasa {

// strtod, because std::stod throws for what is too small for a normal number.
double six_digits(double value) {
  return std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr);
}

std::string GgufKeys::read(std::string_view key) const {
  std::string whole = name(key);
  read_.insert(whole);
  return whole;
}

int64_t GgufKeys::integer_from(std::string_view key, int64_t low) const {
  const std::string whole = read(key);
  if (!header_.has_array(whole)) return header_.integer(whole, low, kMax);
  double common = 0;
  for (const double value : header_.numbers(whole)) {
    if (value == 0) continue;
    if (common != 0 && value != common) fail(key, "the same number for all layers");
    common = value;
  }
  if (!(common >= static_cast<double>(low) && common <= static_cast<double>(kMax))) {
    fail(key, fmt::format("numbers from {} to {}", low, kMax));
  }
  return static_cast<int64_t>(common);
}

// Arrays may go on with layers of multi-token prediction.
std::vector<bool> GgufKeys::flags(std::string_view key, size_t layers) const {
  std::vector<bool> all = header_.flags(read(key));
  if (all.size() < layers) fail(key, fmt::format("{} flags, one per layer", layers));
  all.resize(layers);
  return all;
}

std::vector<int64_t> GgufKeys::integers(std::string_view key, size_t layers) const {
  if (!has_array(key)) return std::vector<int64_t>(layers, integer(key));
  std::vector<double> all = header_.numbers(name(key));
  if (all.size() < layers) fail(key, fmt::format("{} numbers, one per layer", layers));
  all.resize(layers);
  std::vector<int64_t> values;
  for (const double value : all) {
    if (!(value >= 1 && value <= static_cast<double>(kMax))) fail(key, "numbers from 1");
    values.push_back(static_cast<int64_t>(value));
  }
  return values;
}

std::vector<std::string> GgufKeys::unread() const {
  std::vector<std::string> all;
  for (const std::string& key : header_.keys()) {
    if (key.starts_with(prefix_) && !read_.contains(key)) all.push_back(key.substr(prefix_.size()));
  }
  return all;
}

}  // namespace fasa
