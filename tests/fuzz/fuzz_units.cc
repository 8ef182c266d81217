// Sizes, rates and times as users write them.
#include <cmath>

#include "runtime/base/units.h"
#include "tests/fuzz/fuzz_target.h"

FASA_FUZZ_TARGET(units) {
  const std::string_view text = text_of(data, size);
  if (const auto bytes = fasa::parse_bytes(text)) {
    if (!fasa::parse_bytes(fasa::format_bytes(*bytes))) std::abort();
  }
  if (const auto rate = fasa::parse_rate(text)) {
    if (!(*rate > 0) || !std::isfinite(*rate)) std::abort();
    fasa::format_rate(*rate);
  }
  if (const auto seconds = fasa::parse_seconds(text)) {
    if (!(*seconds >= 0) || !std::isfinite(*seconds)) std::abort();
    fasa::format_seconds(*seconds);
  }
}
