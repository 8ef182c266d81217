#include "tools/compared_methods.h"

#include <fmt/format.h>

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

Config with_selection(const Config& base, const std::string& selection, int64_t budget) {
  Config config = base;
  const ConfigOption* kind = find_option("selection", "kind");
  if (!kind->set(config, selection)) {
    throw UsageError(fmt::format("--selections = \"{}\": allowed: {}, between commas", selection,
                                 kind->allowed));
  }
  if (budget > 0) config.selection.fac_tokens = {{.tokens = budget, .share = 0}};
  config.validate();
  return config;
}

}  // namespace fasa
