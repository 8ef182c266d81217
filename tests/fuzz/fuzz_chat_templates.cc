// tokenizer_config.json as the source of chat templates and control tokens. An accepted file
// renders a conversation or gives an error.
#include <ctime>

#include "runtime/text/chat_template.h"
#include "tests/fuzz/fuzz_file.h"
#include "tests/fuzz/fuzz_target.h"

FASA_FUZZ_TARGET(chat_templates) {
  static const FuzzFolder folder;
  folder.write("tokenizer_config.json", data, size);
  const auto templates = fasa::text::ChatTemplates::load(folder.path());
  const fasa::text::ChatMessage messages[] = {{"system", "Be brief."}, {"user", "Who was Ruth?"}};
  std::tm now = {};
  now.tm_mday = 1;
  templates.render(messages, now);
}
