#include "tools/eval_method.h"

#include <fmt/format.h>

#include <vector>

#include "runtime/config_options.h"

namespace fasa {
namespace {

std::string tokens_text(const Config& config) {
  std::string text;
  for (const TokenCount& count : config.selection.fac_tokens) {
    text += text.empty() ? "" : "+";
    text += count.tokens > 0 ? fmt::to_string(count.tokens) : fmt::format("{:g}", count.share);
  }
  return text;
}

}  // namespace

std::string method_name(const Config& config, const Geometry& geometry) {
  const auto kind = method_setup(config).at("kind").get<std::string>();
  if (config.selection.kind == SelectionKind::kFull) return kind;
  std::string name = fmt::format("{} {}", kind, tokens_text(config));
  if (config.selection.kind == SelectionKind::kFasa) {
    name += fmt::format(", {} FCs {}", config.effective_tip_chunks(geometry.chunks()),
                        slice_dtype_name(config.effective_slice_dtype()));
  }
  return name;
}

nlohmann::json method_setup(const Config& config) {
  nlohmann::json selection = config_to_json(config).at("selection");
  selection.erase("map");
  return selection;
}

}  // namespace fasa
