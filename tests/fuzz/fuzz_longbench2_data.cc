// data.json of LongBench v2: a list of questions with choices.
#include "runtime/eval/tasks/longbench2_task.h"
#include "runtime/text/tokenizer.h"
#include "tests/fuzz/fuzz_file.h"
#include "tests/fuzz/fuzz_target.h"

FASA_FUZZ_TARGET(longbench2_data) {
  static const FuzzFolder folder;
  static const auto tokenizer =
      fasa::text::Tokenizer::load(std::string(FASA_SOURCE_DIR) + "/models/needle-3m");
  static const bool made = [] {
    folder.write("0shot.txt", std::string("$DOC$\n$Q$\n$C_A$\n$C_B$\n$C_C$\n$C_D$"));
    return true;
  }();
  if (!made) return;
  folder.write("data.json", data, size);
  const fasa::LongBench2Task task(folder.path(), tokenizer, {.context = 300});
  for (size_t i = 0; i < task.examples(); ++i) {
    const fasa::AskedText asked = task.make(i);
    const fasa::Question& question = asked.questions.front();
    if (asked.ids.size() + question.ids.size() > 300) std::abort();
    if (task.score(question, question.answer) != 1) std::abort();
  }
}
