#include "runtime/llm/generation/model_templates.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/base/error.h"
#include "runtime/llm/gguf/gguf_files.h"
#include "runtime/llm/gguf/gguf_texts.h"

namespace fasa {

std::optional<text::ChatTemplates> open_templates(const std::string& path) {
  if (!is_gguf(path)) return text::ChatTemplates::load_if_present(path);
  const GgufFiles files(path, GgufScope::kKeys);
  const GgufHeader& header = files.header();
  if (!has_gguf_tokenizer(header)) return std::nullopt;
  return text::ChatTemplates::parse(gguf_tokenizer_config_json(header), path);
}

text::ChatTemplates require_templates(const std::string& path) {
  if (!is_gguf(path)) return text::ChatTemplates::load(path);
  if (auto templates = open_templates(path)) return *std::move(templates);
  throw InputError(
      fmt::format("{}: the GGUF metadata have no chat template; fasa generate continues a text "
                  "without one",
                  path));
}

}  // namespace fasa
