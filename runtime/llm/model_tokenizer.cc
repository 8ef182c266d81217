#include "runtime/llm/model_tokenizer.h"

#include "runtime/io/mapped_file.h"
#include "runtime/llm/gguf/gguf_file.h"
#include "runtime/llm/gguf/gguf_texts.h"

namespace fasa {

std::unique_ptr<text::Tokenizer> open_tokenizer(const std::string& path) {
  if (!is_gguf(path)) return text::Tokenizer::load_if_present(path);
  const MappedFile file(path);
  const GgufHeader header(file.bytes(), path);
  if (!header.has("tokenizer.ggml.model")) return nullptr;
  const GgufTokenizerTexts texts = gguf_tokenizer_texts(header);
  return std::make_unique<text::Tokenizer>(
      text::Tokenizer::parse(texts.tokenizer, texts.config, path));
}

}  // namespace fasa
