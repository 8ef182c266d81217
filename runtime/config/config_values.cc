#include "runtime/config/config_values.h"

#include <limits>

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

bool take_string(const Json& value, std::string& out) {
  if (!value.is_string()) return false;
  out = value.get<std::string>();
  return true;
}

// Checks only the range of int; Config::validate checks the option's range.
bool take_int(const Json& value, int& out) {
  if (!value.is_number_integer()) return false;
  const auto number = value.get<int64_t>();
  if (number < std::numeric_limits<int>::min() || number > std::numeric_limits<int>::max()) {
    return false;
  }
  out = static_cast<int>(number);
  return true;
}

bool take_int(const Json& value, std::optional<int>& out) {
  int number = 0;
  if (!take_int(value, number)) return false;
  out = number;
  return true;
}

bool take_auto_int(const Json& value, std::optional<int>& out) {
  if (value.is_string() && value.get<std::string>() == "auto") {
    out.reset();
    return true;
  }
  return take_int(value, out);
}

bool take_bytes(const Json& value, std::optional<uint64_t>& out) {
  const auto bytes = value.is_string()           ? parse_bytes(value.get<std::string>())
                     : value.is_number_integer() ? parse_bytes(value.dump())
                                                 : std::nullopt;
  if (!bytes || *bytes == 0) return false;
  out = bytes;
  return true;
}

bool take_quantity(const Json& value, std::optional<double> (*parse)(std::string_view),
                   double& out) {
  const auto quantity = value.is_string() ? parse(value.get<std::string>()) : std::nullopt;
  if (!quantity) return false;
  out = *quantity;
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

bool take_layers(const Json& value, std::vector<int>& out) {
  const Json array = value.is_array() ? value : Json::array({value});
  std::vector<int> layers(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    if (!take_int(array[i], layers[i]) || layers[i] < 0) return false;
  }
  out = std::move(layers);
  return true;
}

}  // namespace fasa
