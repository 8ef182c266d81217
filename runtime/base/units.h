// Sizes, rates and times as people write them: "6GiB", "16GB/s", "10us".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fasa {

// "1.50 GiB", "37 B".
std::string format_bytes(uint64_t bytes);

// The option name as a flag spells it: a_b -> a-b.
std::string dashed(std::string_view name);

// Parsers return nothing for any other text; they assume no default.
// "6GiB", "512 MiB", "100kB", "64B", "0"; other numbers without a unit are bytes from 1 MiB on, as
// smaller ones lack their unit.
std::optional<uint64_t> parse_bytes(std::string_view text);
// "; did you mean 8GiB?" for a number that lacks its unit, else "".
std::string missing_unit_hint(std::string_view text);
// "4096", "128k" (131072), "1M" (1048576): a number of tokens or other things.
std::optional<int64_t> parse_count(std::string_view text);
// "16GB/s", "900MB/s" -> bytes per second (> 0).
std::optional<double> parse_rate(std::string_view text);
// "10us", "1.5ms", "2s", "300ns" -> seconds (>= 0).
std::optional<double> parse_seconds(std::string_view text);

std::string format_rate(double bytes_per_second);
std::string format_seconds(double seconds);

}  // namespace fasa
