#include "tools/flags/add_option.h"

namespace fasa {

CLI::Option* add_model_option(CLI::App& command, std::string& path) {
  return add_option(command, "--model", path, "DIR",
                    "Folder of a Hugging Face model, or a GGUF file");
}

void add_dtype_option(CLI::App& command, std::string& name) {
  add_shown_option(command, "--dtype", name, "DTYPE",
                   "Type of weights and activations: f32, bf16, auto");
}

void add_prompt_options(CLI::App& command, PromptSource& prompt) {
  add_option(command, "--prompt", prompt.text, "TEXT", "The prompt");
  add_option(command, "--prompt-file", prompt.file, "FILE", "File with the text of the prompt");
  add_option(command, "--prompt-ids", prompt.ids_file, "FILE",
             "File of token ids: a JSON array, or numbers separated by spaces");
}

void add_pre_option(CLI::App& command, std::string& pre) {
  add_option(command, "--pre", pre, "NAME",
             "GGUF files: how a byte-level vocabulary splits text, by the name that "
             "tokenizer.ggml.pre should have, such as llama-bpe or qwen2");
}

}  // namespace fasa
