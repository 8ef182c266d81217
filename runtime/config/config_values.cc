#include "runtime/config/config_values.h"

#include <charconv>
#include <cstdint>

#include "runtime/base/units.h"

namespace fasa {

using Json = nlohmann::json;

namespace {

bool take_count(const Json& value, TokenCount& out) {
  if (value.is_number_integer()) {
    out = {.tokens = value.get<int64_t>(), .share = 0};
    return out.tokens >= 1;
  }
  if (!value.is_number_float()) return false;
  out = {.tokens = 0, .share = value.get<double>()};
  return out.share > 0 && out.share <= 1;
}

}  // namespace

std::optional<NumaPolicy> parse_numa(std::string_view text) {
  if (text == "auto") return NumaPolicy{};
  if (text == "interleave") return NumaPolicy{NumaPolicy::Kind::kInterleave, 0};
  int node = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), node);
  if (error != std::errc() || end != text.data() + text.size() || node < 0) return std::nullopt;
  return NumaPolicy{NumaPolicy::Kind::kNode, node};
}

bool is_integer_in(const Json& value, int lowest, int highest) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return false;
  return value.is_number_integer() && value.get<int64_t>() >= lowest &&
         value.get<int64_t>() <= highest;
}

bool take_bytes(const Json& value, std::optional<uint64_t>& out) {
  const auto bytes = value.is_string()           ? parse_bytes(value.get<std::string>())
                     : value.is_number_integer() ? parse_bytes(value.dump())
                                                 : std::nullopt;
  if (!bytes || *bytes == 0) return false;
  out = bytes;
  return true;
}

bool take_share(const Json& value, double& out) {
  if (!value.is_number()) return false;
  const auto share = value.get<double>();
  if (!(share >= 0 && share <= 1)) return false;
  out = share;
  return true;
}

bool take_counts(const Json& value, std::vector<TokenCount>& out) {
  if (value.is_string() && value.get<std::string>() == "auto") {
    out.clear();
    return true;
  }
  const Json array = value.is_array() ? value : Json::array({value});
  std::vector<TokenCount> counts(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    if (!take_count(array[i], counts[i])) return false;
  }
  if (counts.empty()) return false;
  out = std::move(counts);
  return true;
}

bool take_auto_count(const Json& value, std::optional<TokenCount>& out) {
  if (value.is_string() && value.get<std::string>() == "auto") {
    out.reset();
    return true;
  }
  TokenCount count;
  const bool none = value.is_number() && value.get<double>() == 0;
  if (!none && !take_count(value, count)) return false;
  out = count;
  return true;
}

}  // namespace fasa
