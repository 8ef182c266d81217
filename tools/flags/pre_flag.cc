#include "tools/flags/pre_flag.h"

namespace fasa {

void add_pre_flag(CLI::App& command, std::string& pre) {
  command
      .add_option("--pre", pre,
                  "GGUF files: how a byte-level vocabulary splits text, by the name that "
                  "tokenizer.ggml.pre should have, such as llama-bpe or qwen2")
      ->type_name("NAME");
}

}  // namespace fasa
