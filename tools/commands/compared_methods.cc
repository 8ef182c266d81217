#include "tools/commands/compared_methods.h"

#include <fmt/format.h>

#include <charconv>

#include "runtime/base/error.h"
#include "runtime/config/config_options.h"

namespace fasa {
namespace {

std::vector<std::string> split(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + separator.size();
  }
  return parts;
}

}  // namespace

std::vector<std::string> selection_list(std::string_view text) {
  if (text == "none") return {};
  if (text != "all") return split(text, ",");
  auto names = split(find_option("selection", "kind")->allowed, ", ");
  std::erase(names, "full");
  return names;
}

ComparedBudget parse_budget(const std::string& text, std::string_view flag) {
  const auto refuse = [&] {
    return UsageError(
        fmt::format("{} = {}: allowed: 1 or more, with low-bit tokens a second count, as 128+512 "
                    "or 128+all, and "
                    "their codes, as 128+all:int4 ({})",
                    flag, text, find_option("selection", "value_codes")->allowed));
  };
  const auto count = [&](std::string_view digits) {
    int64_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), end, value);
    if (read.ec != std::errc() || read.ptr != end) throw refuse();
    return value;
  };
  const auto parts = split(text, ":");
  const auto counts = split(parts.front(), "+");
  if (parts.size() > 2 || counts.size() > 2) throw refuse();
  ComparedBudget budget{.tokens = count(counts.front())};
  if (budget.tokens < 1) throw refuse();
  if (parts.size() == 2) {
    budget.codes = parse_slice_dtype(parts.back());
    if (!budget.codes || !is_coded(*budget.codes)) throw refuse();
  }
  if (counts.size() == 1) return budget;
  const std::string_view low_bit = counts.back();
  if (low_bit == "all") {
    budget.low_bit = {.tokens = 0, .share = 1};
  } else {
    budget.low_bit = {.tokens = count(low_bit), .share = 0};
  }
  if (budget.low_bit->tokens < 0) throw refuse();
  return budget;
}

Config with_selection(const Config& base, const std::string& selection,
                      const ComparedBudget& budget) {
  Config config = base;
  const ConfigOption* kind = find_option("selection", "kind");
  if (!kind->set(config, selection)) {
    throw UsageError(fmt::format(
        "--selections = \"{}\": allowed: {}, separated by commas{}", selection, kind->allowed,
        has_comparison_selections()
            ? ""
            : "; builds with FASA_LAB=ON also have selections for comparison"));
  }
  // A budget counts all tokens that a method attends to; an automatic low-bit set would add tokens
  // for fasa only.
  if (budget.tokens > 0) {
    config.selection.fac_tokens = {{.tokens = budget.tokens, .share = 0}};
    if (!config.selection.low_bit_tokens) config.selection.low_bit_tokens = TokenCount{};
  }
  if (budget.low_bit) config.selection.low_bit_tokens = budget.low_bit;
  if (budget.codes) config.selection.slice_dtype = config.selection.value_codes = budget.codes;
  if (config.selection.kind != SelectionKind::kFasa) config.selection.low_bit_tokens = TokenCount{};
  config.validate();
  return config;
}

std::vector<Config> with_row_dtypes(const Config& base, const std::vector<std::string>& names) {
  if (names.empty()) return {base};
  const ConfigOption* option = find_option("placement", "row_dtype");
  std::vector<Config> all;
  for (const std::string& name : names) {
    all.push_back(base);
    if (option->set(all.back(), name)) continue;
    throw UsageError(fmt::format("--row-dtypes = \"{}\": allowed: {}", name, option->allowed));
  }
  return all;
}

}  // namespace fasa
