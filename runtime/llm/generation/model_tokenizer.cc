#include "runtime/llm/generation/model_tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/base/error.h"
#include "runtime/llm/gguf/gguf_files.h"
#include "runtime/llm/gguf/gguf_texts.h"

namespace fasa {

std::unique_ptr<text::Tokenizer> open_tokenizer(const std::string& path, std::string_view pre) {
  if (!is_gguf(path)) {
    if (!pre.empty()) {
      throw UsageError(fmt::format("--pre {}: allowed for GGUF files; {} is a folder", pre, path));
    }
    return text::Tokenizer::load_if_present(path);
  }
  const GgufFiles files(path, GgufScope::kKeys);
  const GgufHeader& header = files.header();
  if (!has_gguf_tokenizer(header)) return nullptr;
  return std::make_unique<text::Tokenizer>(text::Tokenizer::parse(
      gguf_tokenizer_json(header, pre), gguf_tokenizer_config_json(header), path));
}

text::Tokenizer require_tokenizer(const std::string& path, std::string_view pre) {
  if (auto tokenizer = open_tokenizer(path, pre)) return std::move(*tokenizer);
  if (!is_gguf(path)) return text::Tokenizer::load(path);  // says which file is missing
  throw InputError(fmt::format("{}: the GGUF metadata have no tokenizer", path));
}

}  // namespace fasa
