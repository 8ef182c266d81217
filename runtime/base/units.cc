#include "runtime/base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace fasa {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array<Unit, 9> kSizes{{{"B", 1.0},
                                      {"kB", 1e3},
                                      {"KB", 1e3},
                                      {"MB", 1e6},
                                      {"GB", 1e9},
                                      {"KiB", 1024.0},
                                      {"MiB", 1048576.0},
                                      {"GiB", 1073741824.0},
                                      {"TiB", 1099511627776.0}}};
constexpr std::array<Unit, 5> kTimes{
    {{"ns", 1e-9}, {"us", 1e-6}, {"µs", 1e-6}, {"ms", 1e-3}, {"s", 1.0}}};

constexpr double kLeastBytes = 1 << 20;  // of a size without a unit

struct Quantity {
  double value;
  std::string_view unit;
};

std::optional<Quantity> parse_quantity(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value) || value < 0) return std::nullopt;
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  return Quantity{value, unit};
}

bool lacks_unit(const Quantity& quantity) {
  return quantity.unit.empty() && quantity.value > 0 && quantity.value < kLeastBytes;
}

template <size_t N>
std::optional<double> factor_of(const std::array<Unit, N>& units, std::string_view name) {
  const auto found =
      std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.name == name; });
  if (found == units.end()) return std::nullopt;
  return found->factor;
}

// None without a factor, and where the product is beyond a double.
std::optional<double> times(const Quantity& quantity, std::optional<double> factor) {
  const double product = quantity.value * factor.value_or(0);
  return factor && std::isfinite(product) ? std::optional(product) : std::nullopt;
}

}  // namespace

std::string format_bytes(uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kNames[unit]);
}

std::string dashed(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

std::optional<uint64_t> parse_bytes(std::string_view text) {
  const auto quantity = parse_quantity(text);
  if (!quantity) return std::nullopt;
  if (lacks_unit(*quantity)) return std::nullopt;
  const auto factor = quantity->unit.empty() ? 1.0 : factor_of(kSizes, quantity->unit);
  if (!factor || quantity->value * *factor >= 9.2e18) return std::nullopt;
  return static_cast<uint64_t>(std::llround(quantity->value * *factor));
}

std::string missing_unit_hint(std::string_view text) {
  const auto quantity = parse_quantity(text);
  return quantity && lacks_unit(*quantity) ? fmt::format("; did you mean {}GiB?", text) : "";
}

std::optional<int64_t> parse_count(std::string_view text) {
  int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [unit, error] = std::from_chars(text.data(), end, count);
  if (error != std::errc() || end - unit > 1) return std::nullopt;
  if (unit == end) return count;
  constexpr std::string_view kUnits = "kKmM";
  const size_t at = kUnits.find(*unit);
  if (at == std::string_view::npos) return std::nullopt;
  const int64_t factor = at < 2 ? 1 << 10 : 1 << 20;
  if (count > INT64_MAX / factor || count < 0) return std::nullopt;
  return count * factor;
}

std::optional<double> parse_rate(std::string_view text) {
  constexpr std::string_view kPer = "/s";
  if (!text.ends_with(kPer)) return std::nullopt;
  const auto quantity = parse_quantity(text.substr(0, text.size() - kPer.size()));
  if (!quantity || quantity->value <= 0) return std::nullopt;
  return times(*quantity, factor_of(kSizes, quantity->unit));
}

std::optional<double> parse_seconds(std::string_view text) {
  const auto quantity = parse_quantity(text);
  if (!quantity) return std::nullopt;
  return times(*quantity, factor_of(kTimes, quantity->unit));
}

std::string format_rate(double bytes_per_second) {
  return fmt::format("{:.4g}GB/s", bytes_per_second / 1e9);
}

std::string format_seconds(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.4g}us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.4g}ms", seconds * 1e3);
  return fmt::format("{:.4g}s", seconds);
}

}  // namespace fasa
